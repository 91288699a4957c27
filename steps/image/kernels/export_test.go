package kernels

// The references, for comparison.
var (
	InverseGo  = inverse
	ColorGo    = color
	WidenGo    = widen
	LengthenGo = lengthen
	StretchGo  = stretch
	AlongGo    = along
	AddGo      = add
	RoundGo    = rounded
)
