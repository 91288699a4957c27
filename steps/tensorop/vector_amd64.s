#include "textflag.h"

// Eight numbers at a time. n is a multiple of 8.

#define PAIR(OP) \
	MOVQ dst+0(FP), DI; \
	MOVQ a+8(FP), SI; \
	MOVQ b+16(FP), DX; \
	MOVQ n+24(FP), CX; \
	XORQ AX, AX; \
loop: \
	CMPQ AX, CX; \
	JGE  done; \
	VMOVUPS (SI)(AX*4), Y0; \
	OP (DX)(AX*4), Y0, Y0; \
	VMOVUPS Y0, (DI)(AX*4); \
	ADDQ $8, AX; \
	JMP  loop; \
done: \
	VZEROUPPER; \
	RET

#define COMPARE(HOW) \
	MOVQ dst+0(FP), DI; \
	MOVQ a+8(FP), SI; \
	MOVQ b+16(FP), DX; \
	MOVQ n+24(FP), CX; \
	XORQ AX, AX; \
	MOVQ $0x0101010101010101, R8; \
loop: \
	CMPQ AX, CX; \
	JGE  done; \
	VMOVUPS (SI)(AX*4), Y0; \
	VCMPPS HOW, (DX)(AX*4), Y0, Y0; \
	VMOVMSKPS Y0, R9; \
	PDEPQ R8, R9, R9; \
	MOVQ R9, (DI)(AX*1); \
	ADDQ $8, AX; \
	JMP  loop; \
done: \
	VZEROUPPER; \
	RET

// func addVector(dst, a, b *float32, n int)
TEXT ·addVector(SB), NOSPLIT, $0-32
	PAIR(VADDPS)

// func subtractVector(dst, a, b *float32, n int)
TEXT ·subtractVector(SB), NOSPLIT, $0-32
	PAIR(VSUBPS)

// func multiplyVector(dst, a, b *float32, n int)
TEXT ·multiplyVector(SB), NOSPLIT, $0-32
	PAIR(VMULPS)

// func divideVector(dst, a, b *float32, n int)
TEXT ·divideVector(SB), NOSPLIT, $0-32
	PAIR(VDIVPS)

// func equalVector(dst *byte, a, b *float32, n int)
TEXT ·equalVector(SB), NOSPLIT, $0-32
	COMPARE($0)

// func notEqualVector(dst *byte, a, b *float32, n int)
TEXT ·notEqualVector(SB), NOSPLIT, $0-32
	COMPARE($4)

// func lessVector(dst *byte, a, b *float32, n int)
TEXT ·lessVector(SB), NOSPLIT, $0-32
	COMPARE($17)

// func lessEqualVector(dst *byte, a, b *float32, n int)
TEXT ·lessEqualVector(SB), NOSPLIT, $0-32
	COMPARE($18)

// func bytesVector(dst *float32, src *uint8, n int)
TEXT ·bytesVector(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	XORQ AX, AX

loop:
	CMPQ AX, CX
	JGE  done
	VPMOVZXBD (SI)(AX*1), Y0
	VCVTDQ2PS Y0, Y0
	VMOVUPS Y0, (DI)(AX*4)
	ADDQ $8, AX
	JMP  loop

done:
	VZEROUPPER
	RET

// func truncateVector(dst *int32, src *float32, n int) (fit bool)
TEXT ·truncateVector(SB), NOSPLIT, $0-25
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	XORQ AX, AX
	VPCMPEQD Y1, Y1, Y1
	VPSLLD $31, Y1, Y1
	VPXOR Y2, Y2, Y2

loop:
	CMPQ AX, CX
	JGE  done
	VCVTTPS2DQ (SI)(AX*4), Y0
	VPCMPEQD Y0, Y1, Y3
	VPOR Y3, Y2, Y2
	VMOVDQU Y0, (DI)(AX*4)
	ADDQ $8, AX
	JMP  loop

done:
	VPTEST Y2, Y2
	SETEQ fit+24(FP)
	VZEROUPPER
	RET

// func clipVector(dst, src *float32, n int, low, high float32)
TEXT ·clipVector(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS low+24(FP), Y1
	VBROADCASTSS high+28(FP), Y2
	XORQ AX, AX

loop:
	CMPQ AX, CX
	JGE  done
	VMOVUPS (SI)(AX*4), Y0
	VMAXPS Y0, Y1, Y0
	VMINPS Y0, Y2, Y0
	VMOVUPS Y0, (DI)(AX*4)
	ADDQ $8, AX
	JMP  loop

done:
	VZEROUPPER
	RET

// func greatestVector(src *float32, n int, lanes *[8]float32) (numbers bool)
TEXT ·greatestVector(SB), NOSPLIT, $0-25
	MOVQ src+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ lanes+16(FP), DI
	VMOVUPS (SI), Y0
	VMOVAPS Y0, Y4
	VXORPS Y2, Y2, Y2
	XORQ AX, AX
	MOVQ CX, DX
	ANDQ $-16, DX

pairs:
	CMPQ AX, DX
	JGE  last
	VMOVUPS (SI)(AX*4), Y1
	VMOVUPS 32(SI)(AX*4), Y5
	VCMPPS $3, Y1, Y5, Y3
	VORPS Y3, Y2, Y2
	VMAXPS Y1, Y0, Y0
	VMAXPS Y5, Y4, Y4
	ADDQ $16, AX
	JMP  pairs

last:
	VMAXPS Y4, Y0, Y0
	CMPQ AX, CX
	JGE  done
	VMOVUPS (SI)(AX*4), Y1
	VCMPPS $3, Y1, Y1, Y3
	VORPS Y3, Y2, Y2
	VMAXPS Y1, Y0, Y0

done:
	VMOVUPS Y0, (DI)
	VPTEST Y2, Y2
	SETEQ numbers+24(FP)
	VZEROUPPER
	RET

// func firstVector(src *float32, n int, v float32) int
TEXT ·firstVector(SB), NOSPLIT, $0-32
	MOVQ src+0(FP), SI
	MOVQ n+8(FP), CX
	VBROADCASTSS v+16(FP), Y1
	XORQ AX, AX

loop:
	CMPQ AX, CX
	JGE  done
	VCMPPS $0, (SI)(AX*4), Y1, Y0
	VMOVMSKPS Y0, DX
	TESTQ DX, DX
	JNE  found
	ADDQ $8, AX
	JMP  loop

found:
	BSFQ DX, DX
	ADDQ DX, AX

done:
	MOVQ AX, ret+24(FP)
	VZEROUPPER
	RET

DATA ·expTable+0(SB)/4, $0x42ae0000 // 87
DATA ·expTable+4(SB)/4, $0x3fb8aa3b // 1/ln(2)
DATA ·expTable+8(SB)/4, $0x3f318000 // ln(2), its first bits
DATA ·expTable+12(SB)/4, $0xb95e8083 // and the rest
DATA ·expTable+16(SB)/4, $0x39506967 // Cephes expf: the polynomial
DATA ·expTable+20(SB)/4, $0x3ab743ce
DATA ·expTable+24(SB)/4, $0x3c088908
DATA ·expTable+28(SB)/4, $0x3d2aa9c1
DATA ·expTable+32(SB)/4, $0x3e2aaaaa
DATA ·expTable+36(SB)/4, $0x3f000000
DATA ·expTable+40(SB)/4, $0x3f800000
DATA ·expTable+44(SB)/4, $0x7fffffff
GLOBL ·expTable(SB), RODATA, $48

// func expVector(dst, src *float32, n int) int
TEXT ·expVector(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	XORQ AX, AX
	VBROADCASTSS ·expTable+0(SB), Y15
	VBROADCASTSS ·expTable+4(SB), Y14
	VBROADCASTSS ·expTable+8(SB), Y13
	VBROADCASTSS ·expTable+12(SB), Y12
	VBROADCASTSS ·expTable+16(SB), Y11
	VBROADCASTSS ·expTable+20(SB), Y10
	VBROADCASTSS ·expTable+24(SB), Y9
	VBROADCASTSS ·expTable+28(SB), Y8
	VBROADCASTSS ·expTable+32(SB), Y7
	VBROADCASTSS ·expTable+36(SB), Y6
	VBROADCASTSS ·expTable+40(SB), Y5
	VBROADCASTSS ·expTable+44(SB), Y4

loop:
	CMPQ AX, CX
	JGE  done
	VMOVUPS (SI)(AX*4), Y0
	VANDPS Y4, Y0, Y1
	VCMPPS $18, Y15, Y1, Y1
	VMOVMSKPS Y1, DX
	CMPQ DX, $255
	JNE  done
	VMULPS Y14, Y0, Y1
	VROUNDPS $0, Y1, Y1
	VFNMADD231PS Y13, Y1, Y0
	VFNMADD231PS Y12, Y1, Y0
	VMOVAPS Y11, Y2
	VFMADD213PS Y10, Y0, Y2
	VFMADD213PS Y9, Y0, Y2
	VFMADD213PS Y8, Y0, Y2
	VFMADD213PS Y7, Y0, Y2
	VFMADD213PS Y6, Y0, Y2
	VFMADD213PS Y5, Y0, Y2
	VFMADD213PS Y5, Y0, Y2
	VCVTPS2DQ Y1, Y1
	VPSLLD $23, Y1, Y1
	VPADDD Y1, Y2, Y2
	VMOVUPS Y2, (DI)(AX*4)
	ADDQ $8, AX
	JMP  loop

done:
	MOVQ AX, ret+24(FP)
	VZEROUPPER
	RET
