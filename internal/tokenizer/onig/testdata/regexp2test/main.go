// Regexp2test compares package onig with github.com/dlclark/regexp2 on the patterns of published tokenizers: texts whose matches
// differ, with the pattern as it is written and translated to explicit classes, and the time as a multiple of onig's. It is a
// module of its own, so that the server does not depend on regexp2.
//
// Run: go run -mod=mod -overlay overlay.json .
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/tutti-server/tutti/internal/tokenizer/onig"
)

const data = "../../../testdata/"

func read(name string) []byte {
	f, err := os.Open(data + name)
	check(err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	check(err)
	b, err := io.ReadAll(z)
	check(err)
	return b
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func texts() []string {
	var head struct{ Corpus [][]string }
	check(json.NewDecoder(bytes.NewReader(read("gold.jsonl.gz"))).Decode(&head))
	out := slices.Concat(head.Corpus...)
	for first := rune(0); first < 0x20000; first += 64 {
		var parts []string
		for c := first; c < first+64; c++ {
			parts = append(parts, string(c))
		}
		out = append(out, strings.ToValidUTF8(strings.Join(parts, " "), ""))
	}
	return out
}

// matcher returns the matches of a text, nil where it fails.
type matcher func(text string) [][2]int

func own(pattern string) matcher {
	p, err := onig.Compile(pattern)
	check(err)
	var scratch onig.Scratch
	return func(text string) [][2]int {
		found, err := p.Matches(&scratch, []byte(text), nil)
		check(err)
		var out [][2]int
		for _, m := range found {
			if m[0] < m[1] {
				out = append(out, [2]int{int(m[0]), int(m[1])})
			}
		}
		return out
	}
}

func other(pattern string, limit time.Duration) matcher {
	re, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return func(string) [][2]int { return [][2]int{{-1, -1}} }
	}
	re.MatchTimeout = limit
	return func(text string) [][2]int {
		found, err := re.FindAllStringIndex(text, -1)
		if err != nil {
			return [][2]int{{-1, -1}}
		}
		var out [][2]int
		for _, m := range found {
			if m[0] < m[1] {
				out = append(out, [2]int{m[0], m[1]})
			}
		}
		return out
	}
}

// fastest returns the shortest time that a matcher takes for the texts, by rounds that the matchers take in turn.
func fastest(texts []string, all ...matcher) []time.Duration {
	out := make([]time.Duration, len(all))
	for range 5 {
		for i, m := range all {
			start := time.Now()
			for _, t := range texts {
				m(t)
			}
			if d := time.Since(start); out[i] == 0 || d < out[i] {
				out[i] = d
			}
		}
	}
	return out
}

func main() {
	list, total := texts(), [3]int{}
	var ratios []float64
	for d := json.NewDecoder(bytes.NewReader(read("patterns.jsonl.gz"))); d.More(); {
		var g struct{ Name, Pattern string }
		check(d.Decode(&g))
		text, err := onig.Translate(g.Pattern)
		check(err)
		ours, plain, translated := own(g.Pattern), other(g.Pattern, time.Minute), other(text, time.Minute)
		differ := [2]int{}
		for _, t := range list {
			want := ours(t)
			for i, m := range []matcher{plain, translated} {
				if !slices.Equal(want, m(t)) {
					differ[i]++
				}
			}
		}
		took := fastest(list[:600], ours, plain, translated)
		ratio := float64(took[2]) / float64(took[0])
		fmt.Printf("%-26s as written: %5d of %d differ, time x %.2f; translated: %d differ, time x %.2f\n",
			g.Name, differ[0], len(list), float64(took[1])/float64(took[0]), differ[1], ratio)
		total, ratios = [3]int{total[0] + len(list), total[1] + differ[0], total[2] + differ[1]}, append(ratios, ratio)
	}
	slices.Sort(ratios)
	fmt.Printf("all: %d of %d differ as written, %d translated; median time x %.2f\n", total[1], total[0], total[2], ratios[len(ratios)/2])
	worst()
}

// worst times texts that make backtracking slow, with a limit of 5 seconds for regexp2.
func worst() {
	for _, c := range [][2]string{
		{`(a|aa)+$`, strings.Repeat("a", 60) + "b"},
		{`(?:\w+\s?)+$`, strings.Repeat("word ", 20) + "!"},
		{`[\p{Lu}\p{Lo}]*[\p{Ll}]+|\s+`, strings.Repeat("A", 20000) + "1"},
		{`\s+$`, strings.Repeat(" ", 50000) + "x"},
	} {
		text, err := onig.Translate(c[0])
		check(err)
		took := [2]time.Duration{}
		for i, m := range []matcher{own(c[0]), other(text, 5*time.Second)} {
			start := time.Now()
			m(c[1])
			took[i] = time.Since(start)
		}
		fmt.Printf("%-28s on %5d bytes: onig %v, regexp2 %v\n", c[0], len(c[1]), took[0], took[1])
	}
}
