package status_test

import (
	"fmt"

	"github.com/tutti-server/tutti/core/status"
)

func Example() {
	err := status.Errorf(status.InvalidArg, "input 'x' is missing")
	err = status.Prefixf(err, "in ensemble 'e', ")
	fmt.Println(err)
	fmt.Println(status.CodeOf(err), status.CodeOf(err).HTTP(), status.CodeOf(err).GRPC())
	// Output:
	// in ensemble 'e', input 'x' is missing
	// Invalid argument 400 InvalidArgument
}
