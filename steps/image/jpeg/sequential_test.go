package jpeg

import (
	"math/rand/v2"
	"testing"
)

// plain reads bits and codes one at a time, as T.81 describes it.
type plain struct {
	data []byte
	at   int // in bits
}

func (p *plain) bits(n int) (v int32) {
	for range n {
		v = v<<1 | int32(p.data[p.at/8]>>(7-p.at%8)&1)
		p.at++
	}
	return v
}

// symbol reads a code. It reports false if none matches.
func (p *plain) symbol(counts, symbols []byte) (byte, bool) {
	code, first, k := int32(0), int32(0), int32(0)
	for _, n := range counts {
		code = code<<1 | p.bits(1)
		if first <<= 1; code < first+int32(n) {
			return symbols[k+code-first], true
		}
		first, k = first+int32(n), k+int32(n)
	}
	return 0, false
}

func (p *plain) value(size int) int32 {
	if size == 0 {
		return 0
	}
	return extend(p.bits(size), size)
}

// block reads a block. It reports false if a code does not exist.
func (p *plain) block(dc, ac *table, predict *int32, q *steps) (coefs [64]int16, ok bool) {
	size, ok := p.symbol(dc.counts[:], dc.symbols[:])
	if !ok {
		return coefs, false
	}
	*predict += p.value(int(size))
	coefs[0] = int16(*predict) * int16(q[0]>>8)
	for k := 1; k < 64; k++ {
		sym, ok := p.symbol(ac.counts[:], ac.symbols[:])
		if !ok {
			return coefs, false
		}
		if sym&15 == 0 && sym != 0xf0 {
			break
		}
		k += int(sym >> 4)
		at := min(k, 63) // the decoder's treatment of a damaged block
		coefs[zigzag[at]] = int16(p.value(int(sym&15)) * int32(q[at]>>8))
	}
	return coefs, true
}

// setRandom sets a table to random codes of the given symbols, most of them short.
func (t *table) setRandom(tb testing.TB, r *rand.Rand, symbols []byte) {
	tb.Helper()
	r.Shuffle(len(symbols), func(i, j int) { symbols[i], symbols[j] = symbols[j], symbols[i] })
	var counts [16]byte
	n, free := 0, 1 // codes of the current length that no shorter one begins
	for i := range counts {
		free *= 2
		c := r.IntN(min(free, len(symbols)-n, 24) + 1)
		if i == 15 {
			c = max(min(free-1, len(symbols)-n, 255), 0)
		}
		counts[i] = byte(c)
		n, free = n+c, free-c
	}
	if err := t.set(counts[:], symbols[:n]); err != nil {
		tb.Fatal(err)
	}
	t.prepare()
}

// TestSequential compares blocks of random codes and random bits with a decoder that reads bit by bit. Many of them have more than 64
// coefficients, values of all sizes, or codes that do not exist.
func TestSequential(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // test data
	var q steps
	for i := range q {
		at := min(i, 63)
		q[i] = uint32(at*7+1)<<8 | uint32(zigzag[at])
	}
	c := &component{dc: &table{}, ac: &table{}}
	blocks, failed := 0, 0
	for range 300 {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		sizes := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
		c.dc.setRandom(t, r, sizes)
		c.ac.setRandom(t, r, all)
		c.predict = 0
		p := &plain{data: make([]byte, window)}
		for i := range p.data {
			p.data[i] = byte(r.Uint32())
		}
		file := make([]byte, 0, 2*window)
		for _, v := range p.data {
			if file = append(file, v); v == 0xff {
				file = append(file, 0)
			}
		}
		var b reader
		b.reset(file, 0)
		predict := int32(0)
		for p.at < 8*(window-2*most) {
			want, exists := p.block(c.dc, c.ac, &predict, &q)
			var got [64]int16
			if !b.ready() {
				t.Fatal("no data")
			}
			if ok := b.sequential(c, &q, &got); ok != exists {
				t.Fatalf("block %d: got %v, want %v", blocks, ok, exists)
			}
			if blocks++; !exists {
				failed++
				break
			}
			if got != want || 8*b.at-b.n != p.at {
				t.Fatalf("block %d: got %v at bit %d, want %v at bit %d", blocks, got, 8*b.at-b.n, want, p.at)
			}
		}
	}
	if blocks < 100_000 || failed < 30 {
		t.Errorf("only %d blocks, %d of them with a code that does not exist", blocks, failed)
	}
}
