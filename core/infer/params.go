package infer

// ParamKind is the type of a parameter's value.
type ParamKind uint8

// The types a parameter can have on the wire.
const (
	ParamBool ParamKind = iota
	ParamInt
	ParamUint
	ParamDouble
	ParamString
)

// Param is one request or response parameter; the field its Kind names holds the value.
type Param struct {
	Key    string
	Kind   ParamKind
	Bool   bool
	Int    int64
	Uint   uint64
	Double float64
	String string
}

// Params is an ordered list of parameters with unique keys.
type Params []Param
