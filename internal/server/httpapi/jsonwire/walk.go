package jsonwire

// Walk visits the values of nested arrays from left to right, for example 1, 2 and 3 in [[1,2],[3]]. A value that is not an
// array is visited alone. The zero Walk with P set begins at P's cursor.
type Walk struct {
	P     *Parser
	base  int // the depth outside the outermost array
	begun bool
}

// Next moves the cursor to the next value that is not an array. It returns false after the last one. The caller must read the
// value before it calls Next again.
//
// hot: one call per element of a JSON tensor.
func (w *Walk) Next() (bool, error) {
	p := w.P
	var more bool
	var err error
	switch {
	case !w.begun:
		w.begun, w.base = true, p.depth
		if p.Peek() != '[' {
			w.base = -1 // a scalar: there is no second value
			return true, nil
		}
		more = true
	case w.base < 0:
		return false, nil
	default:
		more, err = p.more(']')
	}
	for err == nil {
		switch {
		case !more && p.depth == w.base:
			return false, nil
		case !more:
			more, err = p.more(']')
		case p.Peek() == '[':
			more, err = p.enter(']')
		default:
			return true, nil
		}
	}
	return false, err
}
