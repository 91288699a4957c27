package charclass_test

import (
	"testing"
	"unicode"

	"github.com/tutti-server/tutti/internal/tokenizer/charclass"
)

// TestClassesAreSorted checks the form of the embedded file.
func TestClassesAreSorted(t *testing.T) {
	t.Parallel()
	names := charclass.Names("")
	if len(names) < 100 {
		t.Fatalf("%d classes, expected at least 100", len(names))
	}
	for _, name := range names {
		last := rune(-1)
		for _, r := range charclass.Named(name) {
			if r.Lo <= last || r.Hi < r.Lo || r.Hi > unicode.MaxRune {
				t.Errorf("class '%s': range %X-%X after %X", name, r.Lo, r.Hi, last)
			}
			last = r.Hi
		}
		if last < 0 {
			t.Errorf("class '%s' is empty", name)
		}
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		r    rune
		want bool
	}{
		{"onig.Nd", '7', true},
		{"onig.Nd", 'x', false},
		{"onig.Nd", 0x11DE0, false}, // younger than Unicode 16
		{"onig.L", 'é', true},
		{"onig.L", 0x10D4A, true}, // Unicode 16, which Go 1.26 does not know
		{"punctuation", '$', true},
		{"punctuation", 0x2E52, false}, // Unicode 14, younger than BERT's table
		{"no such class", 'a', false},
	} {
		if got := charclass.Named(c.name).Has(c.r); got != c.want {
			t.Errorf("class '%s' has %U: %v, expected %v", c.name, c.r, got, c.want)
		}
	}
}
