package jsonwire

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestNumbersAreNearest compares every way to read a number with the library's.
func TestNumbersAreNearest(t *testing.T) {
	t.Parallel()
	list := []string{
		"0", "-0", "0.0", "-0.0", "0.1", "-0.30000000000000004", "9007199254740993", "900719925474099.3", "99999999999999.9", "999999999999999.9",
		"123456789012345678901234567890.5", "18446744073709551615.5", "1844674407370955161.65", "0.000000000000001", "0.0000000000000001", "4.35", "1e22", "1.5e300",
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n := r.Uint64() >> r.UintN(64)
		point := r.IntN(20)
		s := strconv.FormatUint(n, 10)
		for len(s) <= point {
			s = "0" + s
		}
		if point > 0 {
			s = s[:len(s)-point] + "." + s[len(s)-point:]
		}
		list = append(list, s)
	}
	for _, s := range list {
		var p Parser
		p.Begin([]byte(s))
		n, err := p.Number()
		want, _ := strconv.ParseFloat(s, 64)
		if got := n.Float(); err != nil || math.Float64bits(got) != math.Float64bits(want) || p.pos != len(s) {
			t.Errorf("%s is read as %v up to %d, error %v; want %v", s, got, p.pos, err, want)
		}
	}
}
