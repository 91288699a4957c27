package embed

import "golang.org/x/sys/cpu"

// fast reports whether the processor can execute product.
var fast = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// product returns the inner product of n numbers with AVX2. n must be a positive multiple of lane.
//
//go:noescape
func product(a, b *float32, n int) float32
