package inspect

// ExampleView is an example of a model's inputs.
type ExampleView struct {
	Name   string          `json:"name"`
	Inputs []ExampleTensor `json:"inputs"`
}

// ExampleTensor is an input of an example. Raw has the elements as requests with binary tensors have them; in JSON it is base64.
type ExampleTensor struct {
	Name  string  `json:"name"`
	Type  string  `json:"datatype"`
	Shape []int64 `json:"shape"`
	Raw   []byte  `json:"raw"`
}
