package tokenizer

import "fmt"

// Truncation is the truncation section of a file.
type Truncation struct {
	MaxLength int    `json:"max_length"`
	Strategy  string `json:"strategy"`
	Direction string `json:"direction"`
	Stride    int    `json:"stride"`
}

// The strategies and the direction as the file writes them.
const (
	longestFirst = "LongestFirst"
	onlyFirst    = "OnlyFirst"
	onlySecond   = "OnlySecond"
	left         = "Left"
	right        = "Right"
)

// lengths returns how many tokens of each sequence stay when there is room for limit tokens.
func (t *Truncation) lengths(n1, n2, limit int, pair bool) (int, int, error) {
	over := n1 + n2 - limit
	switch {
	case over <= 0:
		return n1, n2, nil
	case limit < 0:
		return 0, 0, fmt.Errorf("max_length %d leaves no room for the special tokens of a pair", t.MaxLength)
	case limit == 0:
		return 0, 0, nil
	case t.Strategy == longestFirst && !pair:
		return limit, 0, nil
	case t.Strategy == longestFirst:
		n1, n2 = share(n1, n2, limit)
		return n1, n2, nil
	case t.Strategy == onlyFirst && n1 > over:
		return n1 - over, n2, nil
	case t.Strategy == onlySecond && n2 > over:
		return n1, n2 - over, nil
	case t.Strategy == onlySecond && !pair:
		return 0, 0, fmt.Errorf("the text has %d tokens, over the limit of %d, and strategy 'only_second' needs a pair to truncate", n1, limit)
	default:
		return 0, 0, fmt.Errorf("the pair has %d and %d tokens, over the limit of %d, and the sequence to truncate is too short", n1, n2, limit)
	}
}

// share divides limit between two sequences: the shorter one gets up to half, the other the rest.
func share(n1, n2, limit int) (int, int) {
	short := min(n1, n2, limit/2)
	if n1 > n2 {
		return limit - short, short
	}
	return short, limit - short
}

// windows appends the windows of n tokens, overlapping by the stride, that cover a sequence; none when it is short enough. The first
// one stays, the others overflow. With n of 0 the whole sequence overflows. For example, 5 tokens with n 3 and stride 1 give
// [0,3) and [2,5).
func (t *Truncation) windows(dst []Span, length, n int) ([]Span, error) {
	switch {
	case n >= length:
		return dst, nil
	case n == 0:
		return append(dst, Span{}, Span{0, int32(length)}), nil
	case t.Stride >= n:
		return dst, fmt.Errorf("stride %d of the truncation is not less than the %d tokens that stay of a text", t.Stride, n)
	}
	for at := 0; ; at += n - t.Stride {
		if t.Direction == left {
			end := length - at
			start := max(end-n, 0)
			dst = append(dst, Span{int32(start), int32(end)})
			if start == 0 {
				return dst, nil
			}
			continue
		}
		end := min(at+n, length)
		dst = append(dst, Span{int32(at), int32(end)})
		if end == length {
			return dst, nil
		}
	}
}
