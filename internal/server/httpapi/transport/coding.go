package transport

import (
	"compress/gzip"
	"compress/zlib"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Coding is the compression of a response.
type Coding uint8

// The codings of responses.
const (
	Identity Coding = iota
	Deflate
	Gzip
	numCodings
)

// The header values are shared by all responses.
var (
	codingNames  = [numCodings]string{"identity", "deflate", "gzip"}
	codingValues = [numCodings][]string{{"identity"}, {"deflate"}, {"gzip"}}
	vary         = []string{"Accept-Encoding"}
)

// Negotiate returns the coding that the request's Accept-Encoding weighs highest, of equals the first in the list, and sets
// Content-Encoding and Vary of the response. A star stands for every coding that is not named, Identity first. If nothing
// is acceptable or readable the response is not compressed. For example, "gzip;q=0.5, deflate" selects Deflate.
//
// hot: no allocation.
func Negotiate(request, response http.Header) Coding {
	if len(request["Accept-Encoding"]) == 0 {
		return Identity
	}
	c := accepted(request)
	response["Vary"] = vary
	if c != Identity {
		response["Content-Encoding"] = codingValues[c]
	}
	return c
}

func accepted(h http.Header) Coding {
	var (
		best, star float64
		choice     Coding
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
		for _, c := range [...]Coding{Identity, Gzip, Deflate} {
			if !named[c] {
				return c
			}
		}
	}
	return choice
}

// weighted parses "name;q=weight". The weight is 1 by default.
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

func codingOf(name string) Coding {
	for c := range numCodings {
		if strings.EqualFold(name, codingNames[c]) {
			return c
		}
	}
	return numCodings
}

// compressLevel is the fastest level. Other levels take several times as long and hardly make tensors smaller.
const compressLevel = 1

// compressor is a writer that compresses.
type compressor interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// compressors holds the unused compressors by coding. Each has hundreds of KiB of buffers.
var compressors = [numCodings]sync.Pool{
	Deflate: {New: func() any { return levelled(zlib.NewWriterLevel(io.Discard, compressLevel)) }},
	Gzip:    {New: func() any { return levelled(gzip.NewWriterLevel(io.Discard, compressLevel)) }},
}

// levelled drops the error of an invalid level.
func levelled[T compressor](w T, _ error) compressor { return w }

// Compress calls write with a writer that compresses to w.
func Compress(w io.Writer, c Coding, write func(io.Writer) error) error {
	z := compressors[c].Get().(compressor) //nolint:errcheck,forcetypeassert // the pools hold nothing else
	z.Reset(w)
	err := write(z)
	if err == nil {
		err = z.Close()
	}
	z.Reset(io.Discard)
	compressors[c].Put(z)
	return err
}
