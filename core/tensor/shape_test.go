package tensor_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
)

// TestShape checks shapes up to nine dimensions: a Shape stores eight inline.
func TestShape(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text     string
		dims     []int64
		elements int64
	}{
		{"[]", nil, 1},
		{"[0]", []int64{0}, 0},
		{"[-1]", []int64{-1}, -1},
		{"[-1,0]", []int64{-1, 0}, -1},
		{"[2,3]", []int64{2, 3}, 6},
		{"[1,2,3,4,5,6,7,8]", []int64{1, 2, 3, 4, 5, 6, 7, 8}, 40320},
		{"[1,2,3,4,5,6,7,8,9]", []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, 362880},
		{"[9223372036854775807]", []int64{math.MaxInt64}, math.MaxInt64},
		{"[9223372036854775807,1]", []int64{math.MaxInt64, 1}, math.MaxInt64},
		{"[3037000499,3037000499]", []int64{3037000499, 3037000499}, 9223372030926249001},
		{"[4294967296,2147483648]", []int64{1 << 32, 1 << 31}, -1},
		{"[4294967296,4294967296]", []int64{1 << 32, 1 << 32}, -1},
		{"[4294967296,4294967296,0]", []int64{1 << 32, 1 << 32, 0}, 0},
		{"[0,4294967296,4294967296]", []int64{0, 1 << 32, 1 << 32}, 0},
		{"[4294967296,4294967296,-1]", []int64{1 << 32, 1 << 32, -1}, -1},
		{"[4294967296,4294967296,-1,0]", []int64{1 << 32, 1 << 32, -1, 0}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			given := slices.Clone(tt.dims)
			s := tensor.Of(given...)
			for i := range given {
				given[i] = 77 // Of copies its argument
			}
			if diff := cmp.Diff(append([]int64{}, tt.dims...), append([]int64{}, s.Dims()...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.String() != tt.text || s.Rank() != len(tt.dims) || s.Elements() != tt.elements {
				t.Errorf("shape %s, rank %d, %d elements; want %d", s, s.Rank(), s.Elements(), tt.elements)
			}
		})
	}
}

// TestShapeCopies checks that changing a copy of a shape leaves the original unchanged.
func TestShapeCopies(t *testing.T) {
	t.Parallel()
	for _, rank := range []int{1, 7, 8, 9, 10} {
		dims := make([]int64, rank)
		for i := range dims {
			dims[i] = int64(i + 1)
		}
		s := tensor.Of(dims...)
		c := s
		c.SetDim(rank-1, -5)
		longer := s.Prepend(9)
		shorter := longer.Tail()
		if want := append(slices.Clone(dims[:rank-1]), -5); !slices.Equal(c.Dims(), want) {
			t.Errorf("SetDim made %s, want %v", c, want)
		}
		if want := append([]int64{9}, dims...); !slices.Equal(longer.Dims(), want) {
			t.Errorf("Prepend made %s, want %v", longer, want)
		}
		shorter.SetDim(0, -6)
		longer.SetDim(1, -7)
		if got := s.Tail(); !slices.Equal(got.Dims(), dims[1:]) {
			t.Errorf("Tail made %s, want %v", got, dims[1:])
		}
		if !slices.Equal(s.Dims(), dims) || s.Dim(rank-1) != int64(rank) || shorter.Dim(0) != -6 {
			t.Errorf("the shapes share memory: %s is no longer %v", s, dims)
		}
	}
}

func TestShapeMatches(t *testing.T) {
	t.Parallel()
	nine := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	anyNine := []int64{-1, -1, -1, -1, -1, -1, -1, -1, -1}
	tests := []struct {
		name           string
		s, want        []int64
		matches, equal bool
	}{
		{"scalars", nil, nil, true, true},
		{"same", []int64{2, 3}, []int64{2, 3}, true, true},
		{"other extent", []int64{2, 3}, []int64{2, 4}, false, false},
		{"other rank", []int64{2}, []int64{2, 1}, false, false},
		{"prefix", []int64{2, 3}, []int64{2}, false, false},
		{"any extent", []int64{2, 3}, []int64{-1, 3}, true, false},
		{"any extent, none", []int64{0, 3}, []int64{-1, 3}, true, false},
		{"not the other way", []int64{-1, 3}, []int64{2, 3}, false, false},
		{"spilled", nine, nine, true, true},
		{"spilled, any", nine, anyNine, true, false},
		{"spilled, other", nine, append(slices.Clone(anyNine[:8]), 8), false, false},
		{"spilled, other rank", nine, nine[:8], false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, want := tensor.Of(tt.s...), tensor.Of(tt.want...)
			if got := s.Matches(want); got != tt.matches {
				t.Errorf("%s matches %s: %v", s, want, got)
			}
			if got := s.Equal(want); got != tt.equal || want.Equal(s) != got {
				t.Errorf("%s equals %s: %v", s, want, got)
			}
		})
	}
}
