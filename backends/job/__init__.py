"""Jobs of several processes on this machine: started, watched, ended."""
