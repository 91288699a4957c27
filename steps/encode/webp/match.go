package webp

import "math/bits"

// token is a pixel, or a match of earlier ones.
type token struct {
	length   uint32 // 0 for a pixel.
	distance uint32 // As it is coded.
}

const (
	hashBits  = 15
	longest   = 4096
	shortest  = 4
	maxWindow = 1<<20 - 121
)

// match finds matches in rows of a width: of the pixel before, of those a row above, or of the last place
// that began alike. Its time is linear: each place is tried three times at most, and
// what matched is not tried again.
func (e *Encoder) match(pixels []uint32, width int) {
	e.tokens = e.tokens[:0]
	e.heads = sized(e.heads, 1<<hashBits)
	for i := range e.heads {
		e.heads[i] = -1
	}
	for at := 0; at < len(pixels); {
		h := hash(pixels, at)
		best, distance := 0, 0
		for _, d := range [...]int{1, width, at - int(e.heads[h])} {
			if d > at || d > maxWindow || d == distance {
				continue
			}
			if n := common(pixels, at, at-d); n > best {
				best, distance = n, d
			}
			if best >= 64 {
				break
			}
		}
		e.heads[h] = int32(at)
		if best < shortest {
			e.tokens = append(e.tokens, token{})
			at++
			continue
		}
		e.tokens = append(e.tokens, token{uint32(best), coded(distance, width)})
		at += best
	}
}

// coded gives the code of a distance: the pixels above and before have short ones.
func coded(distance, width int) uint32 {
	switch distance {
	case width:
		return 1
	case 1:
		return 2
	}
	return uint32(distance) + 120
}

func hash(pixels []uint32, at int) uint32 {
	if at+2 >= len(pixels) {
		return 0
	}
	return (pixels[at]*0x9e3779b1 ^ pixels[at+1]*0x85ebca6b ^ pixels[at+2]*0xc2b2ae35) >> (32 - hashBits)
}

// common is how many pixels from a on equal those from b on.
func common(pixels []uint32, a, b int) int {
	n := 0
	for a+n < len(pixels) && n < longest && pixels[a+n] == pixels[b+n] {
		n++
	}
	return n
}

// prefix splits a length or distance into a symbol and extra bits.
func prefix(v uint32) (symbol uint32, n uint, extra uint32) {
	v--
	if v < 4 {
		return v, 0, 0
	}
	top := uint(bits.Len32(v)) - 1
	n = top - 1
	return uint32(2*top) + v>>n&1, n, v & (1<<n - 1)
}
