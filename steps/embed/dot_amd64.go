package embed

import "golang.org/x/sys/cpu"

// fast says whether product may be called.
var fast = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// product is the inner product of n numbers, a multiple of lane above 0, with AVX2.
//
//go:noescape
func product(a, b *float32, n int) float32
