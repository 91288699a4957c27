package kernels

// Factors of the transform in 13-bit fixed point. The algorithm is that of Loeffler, Ligtenberg and Moschytz (1989)
// with 11 multiplications, in the order and with the rounding of libjpeg's jidctint.c.
const (
	constBits = 13
	passBits  = 2

	f0298 = 2446
	f0390 = 3196
	f0541 = 4433
	f0765 = 6270
	f0899 = 7373
	f1175 = 9633
	f1501 = 12299
	f1847 = 15137
	f1961 = 16069
	f2053 = 16819
	f2562 = 20995
	f3072 = 25172
)

// block holds the coefficients of 8 x 8 samples, then the results of the pass down the columns.
type block [64]int32

// limited adds 128 to a sample and clamps it to 0..255.
func limited(v int32) byte {
	v += 128
	if uint32(v) > 255 {
		v = ^(v >> 31) & 255
	}
	return byte(v)
}

// inverse transforms a row of blocks.
func inverse(dst []byte, stride int, coefs []int16) {
	var b block
	for ; len(coefs) >= 64; coefs, dst = coefs[64:], dst[8:] {
		in := (*[64]int16)(coefs)
		for x := range 8 {
			column(&b, in, x)
		}
		for y := range 8 {
			row((*[8]byte)(dst[y*stride:]), (*[8]int32)(b[8*y:]))
		}
		if len(coefs) == 64 {
			return
		}
	}
}

func column(b *block, in *[64]int16, x int) {
	x &= 7
	s0, s1, s2, s3 := int32(in[x]), int32(in[8+x]), int32(in[16+x]), int32(in[24+x])
	s4, s5, s6, s7 := int32(in[32+x]), int32(in[40+x]), int32(in[48+x]), int32(in[56+x])
	if s1|s2|s3|s4|s5|s6|s7 == 0 {
		dc := s0 << passBits
		b[8+x], b[16+x], b[24+x], b[32+x] = dc, dc, dc, dc
		b[x], b[40+x], b[48+x], b[56+x] = dc, dc, dc, dc
		return
	}
	const shift, round = constBits - passBits, 1 << (constBits - passBits - 1)
	e0, e1, e2, e3 := even(s0, s2, s4, s6, round)
	o0, o1, o2, o3 := odd(s1, s3, s5, s7)
	b[x], b[56+x] = short((e0+o3)>>shift), short((e0-o3)>>shift)
	b[8+x], b[48+x] = short((e1+o2)>>shift), short((e1-o2)>>shift)
	b[16+x], b[40+x] = short((e2+o1)>>shift), short((e2-o1)>>shift)
	b[24+x], b[32+x] = short((e3+o0)>>shift), short((e3-o0)>>shift)
}

// short clamps to 16 bits as the vectors do. Only damaged files exceed them.
func short(v int32) int32 { return min(max(v, -1<<15), 1<<15-1) }

func row(d *[8]byte, s *[8]int32) {
	const shift, round = constBits + passBits + 3, 1 << (constBits + passBits + 2)
	if s[1]|s[2]|s[3]|s[4]|s[5]|s[6]|s[7] == 0 {
		dc := limited((s[0] + 1<<(passBits+2)) >> (passBits + 3))
		*d = [8]byte{dc, dc, dc, dc, dc, dc, dc, dc}
		return
	}
	e0, e1, e2, e3 := even(s[0], s[2], s[4], s[6], round)
	o0, o1, o2, o3 := odd(s[1], s[3], s[5], s[7])
	d[0], d[7] = limited((e0+o3)>>shift), limited((e0-o3)>>shift)
	d[1], d[6] = limited((e1+o2)>>shift), limited((e1-o2)>>shift)
	d[2], d[5] = limited((e2+o1)>>shift), limited((e2-o1)>>shift)
	d[3], d[4] = limited((e3+o0)>>shift), limited((e3-o0)>>shift)
}

// even computes the part of coefficients 0, 2, 4 and 6; round is added to each result.
func even(s0, s2, s4, s6, round int32) (e0, e1, e2, e3 int32) {
	z := (s2 + s6) * f0541
	t2, t3 := z-s6*f1847, z+s2*f0765
	t0, t1 := (s0+s4)<<constBits+round, (s0-s4)<<constBits+round
	return t0 + t3, t1 + t2, t1 - t2, t0 - t3
}

// odd computes the part of coefficients 1, 3, 5 and 7.
func odd(s1, s3, s5, s7 int32) (o0, o1, o2, o3 int32) {
	z5 := (s7 + s3 + s5 + s1) * f1175
	z1, z2 := (s7+s1)*-f0899, (s5+s3)*-f2562
	z3, z4 := (s7+s3)*-f1961+z5, (s5+s1)*-f0390+z5
	return s7*f0298 + z1 + z3, s5*f2053 + z2 + z4, s3*f3072 + z2 + z3, s1*f1501 + z1 + z4
}

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
