package tensorop

import (
	"bytes"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

var (
	compareNames = []string{"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
	logicNames   = []string{"logical_and", "logical_or", "logical_xor"}
)

// makeCompare makes a comparison: of numbers, of BOOL as 0 and 1, of texts by their bytes.
func makeCompare(s *spec) error {
	c := equal + code(indexOf(compareNames, s.name))
	d := s.in[0].DType
	if isHalf(d) {
		return makePair(s, c, tensor.FP32, tensor.Bool)
	}
	if err := makePair(s, c, d, tensor.Bool); err != nil || d != tensor.Bytes {
		return err
	}
	p, ok := s.run.(*pair)
	if !ok {
		return s.errorf("texts cannot be compared")
	}
	s.run = (*textPair)(p)
	return nil
}

// makeLogic makes an operation of BOOL.
func makeLogic(s *spec) error {
	if d := s.in[0].DType; d != tensor.Bool {
		return s.errorf("input '%s' is %s, expected TYPE_BOOL", s.in[0].Name, d.ConfigName())
	}
	return makePair(s, and+code(indexOf(logicNames, s.name)), tensor.Bool, tensor.Bool)
}

func compareChunk[T tensor.Number](c code, dst []byte, one, two []T) {
	done := compareVector(c, dst, one, two)
	dst = dst[done:]
	one, two = one[done:][:len(dst)], two[done:][:len(dst)]
	switch c {
	case equal:
		for i := range dst {
			dst[i] = truth(one[i] == two[i])
		}
	case notEqual:
		for i := range dst {
			dst[i] = truth(one[i] != two[i])
		}
	case less:
		for i := range dst {
			dst[i] = truth(one[i] < two[i])
		}
	case lessEqual:
		for i := range dst {
			dst[i] = truth(one[i] <= two[i])
		}
	case greater:
		compareChunk(less, dst, two, one)
	case greaterEqual:
		compareChunk(lessEqual, dst, two, one)
	case and:
		for i := range dst {
			dst[i] = truth(one[i] != 0 && two[i] != 0)
		}
	case or:
		for i := range dst {
			dst[i] = truth(one[i] != 0 || two[i] != 0)
		}
	default:
		for i := range dst {
			dst[i] = truth((one[i] != 0) != (two[i] != 0))
		}
	}
}

// textPair compares texts.
type textPair pair

func (p *textPair) run(b *backends.Batch, x *scratch) error {
	q := (*pair)(p)
	one, two := &b.In[0], &q.value
	if !q.value.Present() {
		two = &b.In[1]
	} else if q.swap {
		one, two = two, one
	}
	shape, err := q.shape(one, two)
	if err != nil {
		return err
	}
	out, err := b.Alloc(0, tensor.Bool, shape)
	if err != nil {
		return err
	}
	w := &x.loop
	w.start(&shape, 3)
	if w.nothing {
		return nil
	}
	q.place(w, 1, one)
	q.place(w, 2, two)
	w.fold()
	places, err := x.places(one, two)
	if err != nil {
		return err
	}
	first, second := places[:one.Shape.Elements()], places[one.Shape.Elements():]
	dst := out.Bytes()
	for more := true; more; more = w.next() {
		for i := range w.inner() {
			order := bytes.Compare(
				elementAt(one.Bytes(), first[w.at[1]+i*w.step(1)]),
				elementAt(two.Bytes(), second[w.at[2]+i*w.step(2)]))
			dst[w.at[0]+i] = truth(holds(q.code, order))
		}
	}
	return nil
}

// holds tells whether a comparison is true of an order: -1, 0 or 1.
func holds(c code, order int) bool {
	switch c {
	case equal:
		return order == 0
	case notEqual:
		return order != 0
	case less:
		return order < 0
	case lessEqual:
		return order <= 0
	case greater:
		return order > 0
	default:
		return order >= 0
	}
}
