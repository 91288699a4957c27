package kernels

// The loops in Go, for comparison, and whether there are lines.
var (
	InverseGo  = inverse
	ReducedGo  = reduced
	ColorGo    = color
	WidenGo    = widen
	LengthenGo = lengthen
	StretchGo  = stretch
	AlongGo    = along
	AddGo      = add
	RoundGo    = rounded
	LerpGo     = lerp
	BlendGo    = blend
	AboveGo    = above
	Fused      = fused
)
