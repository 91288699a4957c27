package onig_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/tokenizer/onig"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          []string
	}{
		{`a|ab`, "abab", []string{"a", "a"}},
		{`(?>a+)b`, "aab", []string{"aab"}},
		{`a++b|a`, "aac", []string{"a", "a"}},
		{`\d{1,3}(?=(?:\d{3})*\b)`, "1234567", []string{"1", "234", "567"}},
		{`(?<=x)y|(?<!x)z`, "xy xz yz", []string{"y", "z"}},
		{`\s+(?!\S)|\s+`, "a  b ", []string{" ", " ", " "}},
		{`(?i:'s)`, "A'S 's", []string{"'S", "'s"}},
		{`[\w&&[^\d_]]+`, "ab1_c", []string{"ab", "c"}},
		{`[[:punct:]]`, "a$b!", []string{"$", "!"}},
		{`^b$`, "a\nb\nc", []string{"b"}},
		{`x*`, "ax", []string{"", "x"}},
		{`\p{Han}+`, "漢字かな", []string{"漢字"}},
	} {
		t.Run(c.pattern, func(t *testing.T) {
			t.Parallel()
			p, err := onig.Compile(c.pattern)
			if err != nil {
				t.Fatal(err)
			}
			found, err := p.Matches(&onig.Scratch{}, []byte(c.text), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range found {
				got = append(got, c.text[m[0]:m[1]])
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("matches (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		`(\w)\1`: `byte 6: escape '\1' is not supported`, `(a`: "does not end", `a)`: "too many", `[a`: "does not end", `*`: "nothing", `c(?<=a*)b`: "byte 1: a look-behind of varying length",
		`\p{Klingon}`: "'Klingon' is not supported", `(?x)a`: "option 'x'", `a{2000}`: "at most 1000", `[b-a]`: "is empty", `(a?)*`: "can be empty",
		`[[:odd:]]`: "'[:odd:]]' is not supported",
	} {
		if _, err := onig.Compile(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pattern %q: error is %v, expected it to contain %q", pattern, err, want)
		}
	}
}

// FuzzMatches compiles any pattern and matches it: matches lie behind each other in the text, or the text is too slow.
func FuzzMatches(f *testing.F) {
	f.Add(`(?i:'s)|[^\r\n\p{L}]?\p{L}+|\s+(?!\S)|(?<=a)b{1,3}?`, "it's  aabb\n")
	f.Add(`(a|aa)+$`, strings.Repeat("a", 60)+"b")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 200 || len(text) > 1<<10 || !utf8.ValidString(text) {
			return
		}
		p, err := onig.Compile(pattern)
		if err != nil {
			return
		}
		found, err := p.Matches(&onig.Scratch{}, []byte(text), nil)
		if err != nil && !errors.Is(err, onig.ErrSlow) {
			t.Fatal(err)
		}
		last := int32(0)
		for _, m := range found {
			if m[0] < last || m[1] < m[0] || int(m[1]) > len(text) {
				t.Fatalf("pattern %q matches %v behind %d in a text of %d bytes", pattern, m, last, len(text))
			}
			last = m[1]
		}
	})
}
