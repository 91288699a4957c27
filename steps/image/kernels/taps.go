package kernels

// Precision is the number of fraction bits of a weight, Pillow's PRECISION_BITS.
const Precision = 22

const half = 1 << (Precision - 1)

// Taps are the weights of a resize along rows of three samples per pixel, in the order of the vectors:
// groups of four pixels, each with the lower 15 bits of its weights and then the other bits.
// Outputs whose groups would end beyond the row begin earlier, with weights of 0.
type Taps struct {
	width   int // pixels of a row
	groups  int // groups of an output
	at      []int32
	weights []int16
}

// Reset allocates outputs of at most the given number of weights. It reports false if the rows are too
// short for whole groups.
func (t *Taps) Reset(width, outputs, most int) bool {
	t.width, t.groups = width, (most+3)/4
	if 4*t.groups > width {
		return false
	}
	t.at, t.weights = sized(t.at, outputs), sized(t.weights, 32*t.groups*outputs)
	clear(t.weights)
	return true
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Set sets the weights of output i, for the pixels from first on.
func (t *Taps) Set(i, first int, weights []int32) {
	at := min(first, t.width-4*t.groups)
	t.at[i] = int32(at)
	w := t.weights[32*t.groups*i:][:32*t.groups]
	for j, k := range weights {
		j += first - at
		place := w[32*(j/4)+8*(j%4/2)+j%2:]
		low, high := int16(k&0x7fff), int16(k>>15)
		place[0], place[2], place[4] = low, low, low
		place[16], place[18], place[20] = high, high, high
	}
}

// along is Along for one row.
func along(dst, src []byte, t *Taps) {
	for i, at := range t.at {
		sums := [3]int32{half, half, half}
		w := t.weights[32*t.groups*i:]
		for j := range 4 * t.groups {
			place := w[32*(j/4)+8*(j%4/2)+j%2:]
			k := int32(place[0]) + int32(place[16])<<15
			for c := range sums {
				sums[c] += int32(src[3*(int(at)+j)+c]) * k
			}
		}
		rounded(dst[3*i:3*i+3], sums[:])
	}
}

func add(sum []int32, a, b []byte, ka, kb int32) {
	for i := range sum {
		sum[i] += int32(a[i])*ka + int32(b[i])*kb
	}
}

func rounded(dst []byte, sum []int32) {
	for i, s := range sum {
		dst[i] = byte(min(max(s>>Precision, 0), 255))
	}
}
