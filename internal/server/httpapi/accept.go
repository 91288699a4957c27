package httpapi

import (
	"math"
	"net/http"
	"strconv"
	"strings"
)

// coding is how an answer is compressed.
type coding uint8

const (
	codingIdentity coding = iota
	codingDeflate
	codingGzip
	numCodings
)

// The header values of each coding are shared, as the other constant ones are.
var (
	codingNames  = [numCodings]string{"identity", "deflate", "gzip"}
	codingValues = [numCodings][]string{{"identity"}, {"deflate"}, {"gzip"}}
	varyValue    = []string{"Accept-Encoding"}
)

// accepted chooses the coding that the client weighs highest, of equals the first it
// names. A star stands for what is not named, without compression first. Nothing
// acceptable, and nothing that can be read, is an answer without compression.
//
// hot: no allocation.
func accepted(h http.Header) coding {
	var (
		best, star float64
		choice     coding
		named      [numCodings]bool
		starred    bool
	)
	for _, line := range h["Accept-Encoding"] {
		for more := true; more; {
			var part string
			part, line, more = strings.Cut(line, ",")
			name, weight, ok := weighted(part)
			if !ok {
				continue
			}
			if name == "*" {
				starred, star = true, weight
				continue
			}
			c := codingOf(name)
			if c == numCodings {
				continue
			}
			named[c] = true
			if weight > best {
				best, choice = weight, c
			}
		}
	}
	if starred && star > best {
		for _, c := range [...]coding{codingIdentity, codingGzip, codingDeflate} {
			if !named[c] {
				return c
			}
		}
	}
	return choice
}

// weighted takes a name and its weight apart.
func weighted(part string) (name string, weight float64, ok bool) {
	name, rest, more := strings.Cut(part, ";")
	name, weight = strings.TrimSpace(name), 1
	for more {
		var param string
		param, rest, more = strings.Cut(rest, ";")
		key, value, _ := strings.Cut(param, "=")
		if key = strings.TrimSpace(key); key != "q" && key != "Q" {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || math.IsNaN(q) {
			return name, 0, false
		}
		weight = q
	}
	return name, weight, name != ""
}

func codingOf(name string) coding {
	for c := range numCodings {
		if strings.EqualFold(name, codingNames[c]) {
			return c
		}
	}
	return numCodings
}
