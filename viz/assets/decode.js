// The way back of viz/panels/payload.py: from one base64 text to the columns of a timeline, bit for bit.
(function (pipesim) {
  "use strict";
  const INTS = ["kind", "stage", "microbatch", "slice", "fused", "flow", "peer", "match", "lane", "needs", "need"];
  const REST = ["idle_rank", "idle_cause", "idle_box", "critical"];
  const RECV = 7, STEP = 9, LAST_COMPUTE = 3;

  pipesim.decode = async function (pack) {
    const bytes = await pipesim.inflate(pack.data);
    const columns = { offsets: pack.offsets, until: pack.until };
    let at = 0;
    for (const name of [...INTS, ...REST]) {
      columns[name] = ints(bytes, at, pack.counts[name]);
      at += 4 * pack.counts[name];
      sum(name, columns);
    }
    columns.rank = ranks(pack.offsets);
    columns.firstNeed = running(columns.needs);
    const count = columns.kind.length, idle = columns.idle_rank.length;
    const words = [count, count, idle, idle].map((length) => {
      const pair = doubles(bytes, at, length);
      at += 8 * length;
      return pair;
    });
    times(columns, words[0], words[1]);
    idleTimes(columns, words[2], words[3]);
    return columns;
  };

  // One 32-bit number an operation.
  pipesim.decodeFloats = async function (text) {
    return new Float32Array((await pipesim.inflate(text)).buffer);
  };

  pipesim.inflate = async function (text) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  function ints(bytes, at, count) {
    const values = new Int32Array(count);
    for (let i = 0; i < count; i++) {
      values[i] = bytes[at + i] | (bytes[at + count + i] << 8) | (bytes[at + 2 * count + i] << 16) |
        (bytes[at + 3 * count + i] << 24);
    }
    return values;
  }

  // Pairs of 32-bit words (low, high): JavaScript has no quick 64-bit integers.
  function doubles(bytes, at, count) {
    return [ints(bytes, at, count), ints(bytes, at + 4 * count, count)];
  }

  function sum(name, columns) {
    const values = columns[name];
    if (name === "match") {
      for (let i = 0; i < values.length; i++) values[i] += i;
    } else if (name === "need") {
      let at = 0;
      for (let op = 0; op < columns.needs.length; op++) {
        for (let k = columns.needs[op]; k > 0; k--) values[at++] += op;
      }
    } else {
      for (let i = 1; i < values.length; i++) values[i] += values[i - 1];
    }
  }

  function ranks(offsets) {
    const rank = new Int32Array(offsets[offsets.length - 1]);
    for (let r = 0; r + 1 < offsets.length; r++) rank.fill(r, offsets[r], offsets[r + 1]);
    return rank;
  }

  function running(counts) {
    const first = new Int32Array(counts.length + 1);
    for (let i = 0; i < counts.length; i++) first[i + 1] = first[i] + counts[i];
    return first;
  }

  // Boxes, then what sends, then receives; each lane in a row.
  function writingOrder(columns) {
    const { kind, lane } = columns, count = kind.length;
    const lanes = count ? lane.reduce((most, one) => Math.max(most, one), 0) + 1 : 0;
    const key = new Int32Array(count), size = new Int32Array(3 * lanes + 1);
    for (let op = 0; op < count; op++) {
      const turn = kind[op] === RECV ? 2 : kind[op] <= LAST_COMPUTE || kind[op] === STEP ? 0 : 1;
      key[op] = turn * lanes + lane[op];
      size[key[op] + 1]++;
    }
    for (let i = 1; i < size.length; i++) size[i] += size[i - 1];
    const order = new Int32Array(count);
    for (let op = 0; op < count; op++) order[size[key[op]]++] = op;
    return order;
  }

  const word = new Float64Array(1), halves = new Uint32Array(word.buffer);

  function unmask(bits, at, guess) {
    word[0] = guess;
    halves[0] ^= bits[0][at];
    halves[1] ^= bits[1][at];
    return word[0];
  }

  function times(columns, startBits, endBits) {
    const { kind, lane, match, need, rank, firstNeed } = columns, count = kind.length;
    const start = (columns.start = new Float64Array(count)), end = (columns.end = new Float64Array(count));
    const done = new Uint8Array(count), laneEnd = new Map(), took = new Map();
    writingOrder(columns).forEach((op, place) => {
      let guess = laneEnd.get(lane[op]) || 0;
      for (let k = firstNeed[op]; k < firstNeed[op + 1]; k++) {
        if (done[need[k]] && end[need[k]] > guess) guess = end[need[k]];
      }
      if (kind[op] === RECV && done[match[op]]) guess = start[match[op]];
      start[op] = unmask(startBits, place, guess);
      const key = rank[op] * 16 + kind[op];
      end[op] = unmask(endBits, place, start[op] + (took.get(key) || 0));
      laneEnd.set(lane[op], end[op]);
      took.set(key, end[op] - start[op]);
      done[op] = 1;
    });
  }

  function idleTimes(columns, beginBits, endBits) {
    const { kind, fused, rank, idle_rank: who, idle_box: before } = columns;
    const boxes = columns.offsets.slice(1).map(() => []);
    for (let op = 0; op < kind.length; op++) if (kind[op] <= LAST_COMPUTE && !fused[op]) boxes[rank[op]].push(op);
    const begin = (columns.idle_start = new Float64Array(who.length));
    const finish = (columns.idle_end = new Float64Array(who.length));
    for (let i = 0; i < who.length; i++) {
      const mine = boxes[who[i]], box = before[i];
      let guess = box > 0 ? columns.end[mine[box - 1]] : 0;
      if (i && who[i - 1] === who[i] && before[i - 1] === box) guess = finish[i - 1];
      begin[i] = unmask(beginBits, i, guess);
      finish[i] = unmask(endBits, i, box < mine.length ? columns.start[mine[box]] : columns.until);
    }
  }
})((window.pipesim = window.pipesim || {}));
