package dataset_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/dataset"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1": "1", "-0": "-0", "1.0": "1", "1.50": "1.5", "0.00000100": "0.000001", "0.0000001": "1e-07", "1e2": "100", "1E+2": "100", "12.5e-1": "1.25",
		"-0.0": "-0", "10": "10", "100.0": "100", "9223372036854775807": "9223372036854775807", "18446744073709551615": "18446744073709551615",
		"18446744073709551616": "18446744073709552000", "0.1000000000000000055": "0.1", "1e400": "Infinity", "NaN": "NaN", "-Infinity": "-Infinity", "Infinity": "Infinity",
		`[ 1.0 , "a\/\u00e9" , {"b" : 1 , "a" : [ ] } , null , true ]`: `[1,"a/é",{"a":[],"b":1},null,true]`, `""`: `""`, "{}": "{}",
		"[1,-2.5,0.25]": "[1,-2.5,0.25]", "[ 1 ,2.5, 3.0,4e0,5 ,\t0.0000001,-0.5 ]": "[1,2.5,3,4,5,1e-07,-0.5]", "[1,[2, 3.10],4]": "[1,[2,3.1],4]", "[]": "[]",
		"[9223372036854775807,1]": "[9223372036854775807,1]",
		"[1,null,2,\"3\",4]":      "[1,null,2,\"3\",4]", "[0.000001,0.00001]": "[0.000001,0.00001]", "[1,2\n]": "[1,2]",
	} {
		if got := dataset.Canonical(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

// TestCanonicalLists compares lists of numbers, which are read together, with their elements.
func TestCanonicalLists(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	digits := func(most int) string {
		list := make([]string, 1+random.IntN(most))
		for i := range list {
			list[i] = pick("0", "1", "5", "9")
		}
		return strings.Join(list, "")
	}
	for range 5000 {
		var list, want []string
		for range 1 + random.IntN(5) {
			number := pick("", "-") + pick("0", "1"+digits(17)) + pick("", "", "."+digits(17), "."+digits(4)) + pick("", "", "", "e-3")
			list = append(list, pick("", "", " ", "\t ")+number+pick("", "", " "))
			want = append(want, dataset.Canonical(number))
		}
		text := "[" + strings.Join(list, ",") + "]"
		if got := dataset.Canonical(text); got != "["+strings.Join(want, ",")+"]" {
			t.Fatalf("%s is %s, want the elements %s", text, got, want)
		}
	}
}

// FuzzCanonical checks that equal floats have one spelling, and others another one.
func FuzzCanonical(f *testing.F) {
	f.Add(0.1, uint8(3))
	f.Add(123456.789, uint8(20))
	f.Add(1e-7, uint8(0))
	f.Fuzz(func(t *testing.T, v float64, more uint8) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		short := dataset.Canonical(strconv.FormatFloat(v, 'g', -1, 64))
		if long := dataset.Canonical(strconv.FormatFloat(v, 'e', 17+int(more)%30, 64)); long != short {
			t.Errorf("%v is %s and %s", v, short, long)
		}
		var back float64
		if err := json.Unmarshal([]byte(short), &back); err != nil || back != v {
			t.Errorf("%v is %s: %v, %v", v, short, back, err)
		}
	})
}
