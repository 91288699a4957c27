package kernels

// Factors of the reduced transforms, in 13-bit fixed point.
const (
	r0211 = 1730
	r0509 = 4176
	r0601 = 4926
	r0720 = 5906
	r0850 = 6967
	r1061 = 8697
	r1272 = 10426
	r1451 = 11893
	r2172 = 17799
	r3624 = 29692
)

// reduced transforms a row of blocks to size x size samples each, as libjpeg's jidctred.c does.
func reduced(dst []byte, stride, size int, coefs []int16) {
	for ; len(coefs) >= 64; coefs = coefs[64:] {
		in := (*[64]int16)(coefs)
		switch size {
		case 4:
			inverse4(dst, stride, in)
		case 2:
			inverse2(dst, stride, in)
		default:
			dst[0] = limited((int32(in[0]) + 4) >> 3)
		}
		if len(coefs) > 64 {
			dst = dst[size:]
		}
	}
}

// inverse4 gives 4 x 4 samples. It ignores coefficient 4 of both directions.
func inverse4(dst []byte, stride int, in *[64]int16) {
	const shift = constBits - passBits + 1
	var b [4][8]int32
	for x := range 8 {
		if x != 4 {
			a0, a1, a2, a3 := four(int32(in[x]), int32(in[8+x]), int32(in[16+x]), int32(in[24+x]),
				int32(in[40+x]), int32(in[48+x]), int32(in[56+x]), 1<<(shift-1))
			b[0][x], b[1][x], b[2][x], b[3][x] = short(a0>>shift), short(a1>>shift), short(a2>>shift), short(a3>>shift)
		}
	}
	const last = constBits + passBits + 3 + 1
	for y := range b {
		s, d := &b[y], (*[4]byte)(dst[y*stride:])
		a0, a1, a2, a3 := four(s[0], s[1], s[2], s[3], s[5], s[6], s[7], 1<<(last-1))
		d[0], d[1], d[2], d[3] = limited(a0>>last), limited(a1>>last), limited(a2>>last), limited(a3>>last)
	}
}

func four(s0, s1, s2, s3, s5, s6, s7, round int32) (a0, a1, a2, a3 int32) {
	t := s0<<(constBits+1) + round
	e := s2*f1847 - s6*f0765
	p, q := t+e, t-e
	lo := -s7*r0211 + s5*r1451 - s3*r2172 + s1*r1061
	hi := -s7*r0509 - s5*r0601 + s3*f0899 + s1*f2562
	return p + hi, q + lo, q - lo, p - hi
}

// inverse2 gives 2 x 2 samples from coefficient 0 and the odd ones.
func inverse2(dst []byte, stride int, in *[64]int16) {
	const shift = constBits - passBits + 2
	var b [2][8]int32
	for _, x := range [...]int{0, 1, 3, 5, 7} {
		t, o := two(int32(in[x]), int32(in[8+x]), int32(in[24+x]), int32(in[40+x]), int32(in[56+x]), 1<<(shift-1))
		b[0][x], b[1][x] = short((t+o)>>shift), short((t-o)>>shift)
	}
	const last = constBits + passBits + 3 + 2
	for y := range b {
		s := &b[y]
		t, o := two(s[0], s[1], s[3], s[5], s[7], 1<<(last-1))
		dst[y*stride], dst[y*stride+1] = limited((t+o)>>last), limited((t-o)>>last)
	}
}

func two(s0, s1, s3, s5, s7, round int32) (t, o int32) {
	return s0<<(constBits+2) + round, -s7*r0720 + s5*r0850 - s3*r1272 + s1*r3624
}
