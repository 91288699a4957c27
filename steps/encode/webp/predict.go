package webp

// blockBits is the logarithm of a block's side.
const blockBits = 4

// candidates are the predictors tried: left, above, the nearer of both, and their sum
// less what is above left.
var candidates = [...]uint32{1, 2, 11, 12}

// predict fills residual and modes.
func (e *Encoder) predict(height int) {
	e.residual = sized(e.residual, len(e.pixels))
	wide, tall := (e.width+1<<blockBits-1)>>blockBits, (height+1<<blockBits-1)>>blockBits
	e.modes = sized(e.modes, wide*tall)
	for by := range tall {
		for bx := range wide {
			x0, y0 := bx<<blockBits, by<<blockBits
			x1, y1 := min(x0+1<<blockBits, e.width), min(y0+1<<blockBits, height)
			best, least := uint32(0), ^uint32(0)
			for _, m := range candidates {
				if c := e.block(m, x0, y0, x1, y1); c < least {
					best, least = m, c
				}
			}
			if best != candidates[len(candidates)-1] {
				e.block(best, x0, y0, x1, y1)
			}
			e.modes[by*wide+bx] = 0xff000000 | best<<8
		}
	}
}

// block writes the residuals of a block and returns how large they are together.
func (e *Encoder) block(mode uint32, x0, y0, x1, y1 int) (cost uint32) {
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			i := y*e.width + x
			r := minus(e.pixels[i], e.predicted(mode, x, y, i))
			e.residual[i] = r
			cost += magnitude(r)
		}
	}
	return cost
}

// predicted is what the pixels before say of pixel i. The first row and column have
// rules of their own.
func (e *Encoder) predicted(mode uint32, x, y, i int) uint32 {
	switch {
	case x == 0 && y == 0:
		return 0xff000000
	case y == 0:
		return e.pixels[i-1]
	case x == 0:
		return e.pixels[i-e.width]
	}
	left, above := e.pixels[i-1], e.pixels[i-e.width]
	switch mode {
	case 1:
		return left
	case 2:
		return above
	case 11:
		return nearer(left, above, e.pixels[i-e.width-1])
	default:
		return gradient(left, above, e.pixels[i-e.width-1])
	}
}

// minus subtracts byte by byte.
func minus(a, b uint32) uint32 {
	const odd = 0x00ff00ff
	hi := (a>>8&odd | 0x01000100) - b>>8&odd
	lo := (a&odd | 0x01000100) - b&odd
	return hi&odd<<8 | lo&odd
}

// magnitude is how far the bytes are from 0 together, as signed numbers.
func magnitude(v uint32) (n uint32) {
	for range 4 {
		b := int32(int8(v))
		n += uint32(max(b, -b))
		v >>= 8
	}
	return n
}

// nearer is left or above, whichever is closer to left + above - corner.
func nearer(left, above, corner uint32) uint32 {
	toLeft, toAbove := int32(0), int32(0)
	for s := 0; s < 32; s += 8 {
		l, a, c := int32(left>>s&255), int32(above>>s&255), int32(corner>>s&255)
		toLeft += distance(a, c)
		toAbove += distance(l, c)
	}
	if toLeft < toAbove {
		return left
	}
	return above
}

func distance(a, b int32) int32 { return max(a-b, b-a) }

// gradient is left + above - corner, limited byte by byte.
func gradient(left, above, corner uint32) (v uint32) {
	for s := 0; s < 32; s += 8 {
		p := int32(left>>s&255) + int32(above>>s&255) - int32(corner>>s&255)
		v |= uint32(min(max(p, 0), 255)) << s
	}
	return v
}
