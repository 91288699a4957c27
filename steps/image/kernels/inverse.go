package kernels

// Factors of the transform in 13-bit fixed point. The algorithm is that of Loeffler, Ligtenberg and
// Moschytz (1989) with 11 multiplications, in the order and with the rounding of libjpeg's
// jidctint.c.
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
