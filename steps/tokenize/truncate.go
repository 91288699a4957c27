package tokenize

import "fmt"

// Truncation is the file's truncation section.
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

// lengths says how many tokens of each sequence stay when there is room for limit of them.
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

// share divides limit between two sequences: the shorter one keeps up to half, the other takes the rest.
func share(n1, n2, limit int) (int, int) {
	short := min(n1, n2, limit/2)
	if n1 > n2 {
		return limit - short, short
	}
	return short, limit - short
}

// cut keeps n tokens of seq.
func (t *Truncation) cut(seq []token, n int) []token {
	if t.Direction == left {
		return seq[len(seq)-n:]
	}
	return seq[:n]
}
