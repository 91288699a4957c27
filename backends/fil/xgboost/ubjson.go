package xgboost

import (
	"encoding/binary"
	"math"
	"strconv"
)

// ubjSource reads Universal Binary JSON, draft 12, with its typed and counted containers. Numbers are in network byte order.
type ubjSource struct {
	all   string
	pos   int
	depth int
	// typed is the type of the elements of the container that is read, when it has one type for all. 0 otherwise.
	typed byte
}

func (s *ubjSource) at() int { return s.pos }

// bytes consumes n bytes.
func (s *ubjSource) bytes(n int) (string, error) {
	if n < 0 || n > len(s.all)-s.pos {
		return "", invalid(s, "the file ends, expected %d bytes more", n)
	}
	s.pos += n
	return s.all[s.pos-n : s.pos], nil
}

// marker consumes the type of the next value.
func (s *ubjSource) marker() (byte, error) {
	if s.typed != 0 {
		return s.typed, nil
	}
	for {
		b, err := s.bytes(1)
		if err != nil || b[0] != 'N' { // a value that is none
			return (b + "\x00")[0], err
		}
	}
}

// next returns the next byte without consuming it, 0 at the end.
func (s *ubjSource) next() byte {
	if s.pos == len(s.all) {
		return 0
	}
	return s.all[s.pos]
}

// width returns the size of the numbers of a type, 0 for other types.
func width(marker byte) int {
	switch marker {
	case 'i', 'U':
		return 1
	case 'I':
		return 2
	case 'l', 'd':
		return 4
	case 'L', 'D':
		return 8
	}
	return 0
}

// decode returns the number of a type in its bytes.
func decode(marker byte, b string) float64 {
	switch marker {
	case 'i':
		return float64(int8(b[0]))
	case 'U':
		return float64(b[0])
	case 'I':
		return float64(int16(binary.BigEndian.Uint16([]byte(b))))
	case 'l':
		return float64(int32(binary.BigEndian.Uint32([]byte(b))))
	case 'd':
		return float64(math.Float32frombits(binary.BigEndian.Uint32([]byte(b))))
	case 'L':
		return float64(int64(binary.BigEndian.Uint64([]byte(b))))
	}
	return math.Float64frombits(binary.BigEndian.Uint64([]byte(b)))
}

// number consumes a number of a type.
func (s *ubjSource) number(marker byte) (float64, error) {
	n := width(marker)
	if n == 0 {
		return 0, invalid(s, "found type %q, expected a number", marker)
	}
	b, err := s.bytes(n)
	if err != nil {
		return 0, err
	}
	return decode(marker, b), nil
}

// length consumes a length with its type.
func (s *ubjSource) length() (int, error) {
	m, err := s.bytes(1)
	if err != nil {
		return 0, err
	}
	n, err := s.number(m[0])
	if err == nil && (n < 0 || n > float64(len(s.all)) || n != math.Trunc(n)) {
		return 0, invalid(s, "found length %v, expected at most the %d bytes of the file", n, len(s.all))
	}
	return int(n), err
}

// container reads the elements of a container up to its end. counted is called with the type of all elements, or 0, and their number
// when the container has them in front; it reports whether it has consumed them all.
func (s *ubjSource) container(open, end byte, counted func(typed byte, n int) (bool, error), each func() error) error {
	m, err := s.marker()
	if err != nil {
		return err
	}
	if m != open {
		return invalid(s, "found type %q, expected %q", m, open)
	}
	if s.depth++; s.depth > maxNesting {
		return invalid(s, "found more than %d containers inside each other", maxNesting)
	}
	outer := s.typed
	defer func() { s.depth, s.typed = s.depth-1, outer }()
	s.typed = 0
	var typed byte
	if s.next() == '$' {
		b, err := s.bytes(2)
		if err != nil {
			return err
		}
		if typed = b[1]; s.next() != '#' {
			return invalid(s, "found a container of type %q without a count", typed)
		}
	}
	if s.next() != '#' {
		for s.next() != end {
			if s.next() == 'N' {
				s.pos++
				continue
			}
			if err := each(); err != nil {
				return err
			}
		}
		_, err := s.bytes(1)
		return err
	}
	s.pos++
	n, err := s.length()
	if err != nil {
		return err
	}
	if done, err := counted(typed, n); done || err != nil {
		return err
	}
	s.typed = typed
	for range n {
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}

// loose is for containers whose elements are read one by one. Elements without bytes, of which a short file could have any number,
// are refused.
func (s *ubjSource) loose(typed byte, _ int) (bool, error) {
	switch typed {
	case 'Z', 'N', 'T', 'F':
		return false, invalid(s, "found a container of type %q, expected elements with a value", typed)
	}
	return false, nil
}

func (s *ubjSource) object(field func(key string) error) error {
	return s.container('{', '}', s.loose, func() error {
		n, err := s.length()
		if err != nil {
			return err
		}
		key, err := s.bytes(n)
		if err != nil {
			return err
		}
		return field(key)
	})
}

func (s *ubjSource) array(each func() error) error { return s.container('[', ']', s.loose, each) }

func (s *ubjSource) numbers(size func(n int), add func(x float64)) error {
	block := func(typed byte, n int) (bool, error) {
		step := width(typed)
		if step == 0 || n > (len(s.all)-s.pos)/step {
			return s.loose(typed, n)
		}
		size(n)
		b, err := s.bytes(n * step)
		for ; len(b) > 0; b = b[step:] {
			add(decode(typed, b[:step]))
		}
		return true, err
	}
	return s.container('[', ']', block, func() error {
		m, err := s.marker()
		if err != nil {
			return err
		}
		switch m {
		case 'T':
			add(1)
			return nil
		case 'F':
			add(0)
			return nil
		}
		x, err := s.number(m)
		if err == nil {
			add(x)
		}
		return err
	})
}

func (s *ubjSource) text() (string, error) {
	m, err := s.marker()
	if err != nil {
		return "", err
	}
	switch m {
	case 'S', 'H':
		n, err := s.length()
		if err != nil {
			return "", err
		}
		return s.bytes(n)
	case 'C':
		return s.bytes(1)
	case 'T':
		return "true", nil
	case 'F':
		return "false", nil
	case 'Z':
		return "null", nil
	}
	x, err := s.number(m)
	return strconv.FormatFloat(x, 'g', -1, 64), err
}

func (s *ubjSource) skip() error {
	m := s.typed
	if m == 0 {
		for m = s.next(); m == 'N'; m = s.next() {
			s.pos++
		}
	}
	switch m {
	case '{':
		return s.object(func(string) error { return s.skip() })
	case '[':
		return s.array(s.skip)
	}
	_, err := s.text()
	return err
}

func (s *ubjSource) end() error {
	if s.pos < len(s.all) {
		return invalid(s, "found %d bytes more, expected the end of the file", len(s.all)-s.pos)
	}
	return nil
}
