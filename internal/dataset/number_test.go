package dataset_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/dataset"
)

// TestDecimal compares the short way to read a number with strconv.
func TestDecimal(t *testing.T) {
	t.Parallel()
	for text, short := range map[string]bool{
		"0": true, "-0": true, "0.1": true, "-12.5": true, "999999999999999": true, "0.00000000000001": true, "1234567.875": true,
		"16777217": false, "-16777219.0": false, "8388608.5": false, // in the middle of two FP32
		"1000000000000000": false, "0.123456789012345": false, "1e3": false, "1.5E2": false, "NaN": false, "-Infinity": false, "-": false,
	} {
		if _, ok := dataset.Decimal(text); ok != short {
			t.Errorf("%s is read by the short way: %v, want %v", text, ok, short)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 200_000 {
		digits := strconv.FormatUint(r.Uint64N(uint64(math.Pow10(1+r.IntN(15)))), 10)
		at := r.IntN(len(digits))
		text := digits[:at] + "." + digits[at:]
		if at == 0 {
			text = "0" + text
		}
		if r.IntN(3) == 0 { // near the middle of two FP32
			v := math.Float32frombits(r.Uint32N(0x4b800000-0x38000000) + 0x38000000)
			text = strconv.FormatFloat(float64(v)+float64(math.Nextafter32(v, math.MaxFloat32)-v)/2, 'f', r.IntN(12), 64)
		}
		if r.IntN(2) == 0 {
			text = "-" + text
		}
		text = strings.TrimSuffix(text, ".")
		got, ok := dataset.Decimal(text)
		if !ok {
			continue
		}
		read++
		if want, err := strconv.ParseFloat(text, 32); err != nil || math.Float32bits(got) != math.Float32bits(float32(want)) {
			t.Fatalf("%s is %v, want %v, %v", text, got, want, err)
		}
	}
	if read < 100_000 {
		t.Errorf("%d of 200000 numbers were read by the short way", read)
	}
}

// TestCanonicalList checks that a number has the same canonical form in a list and alone.
func TestCanonicalList(t *testing.T) {
	t.Parallel()
	for _, n := range []string{
		"0", "-0", "1.5", "1.50", "1.0", "0.000001", "0.0000001", "-0.00000012", "123456789012345", "123456789012345678", "1234567890123456789", "0.12345678901234",
		"0.1234567890123456", "12345678901234.5", "1e2", "-1.25E-1", "NaN", "Infinity", "-Infinity", "10", "100.25", "0.0", "-0.0",
	} {
		one := dataset.Canonical(n)
		for _, list := range []string{"[" + n + "]", "[" + n + "," + n + "]", "[ " + n + " , " + n + " ]"} {
			want := "[" + one + "]"
			if strings.Contains(list, ",") {
				want = "[" + one + "," + one + "]"
			}
			if got := dataset.Canonical(list); got != want {
				t.Errorf("%s is %s, want %s", list, got, want)
			}
		}
	}
}
