package cmd_test

import (
	"fmt"

	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/cmd"
)

// A program adds its backends to the built-in ones. A second backend with a known name is an error.
func Example() {
	components := cmd.Builtin()
	registry, err := components.Registry()
	if err != nil {
		panic(err)
	}
	fmt.Println(registry.ByName("native") != nil, registry.ByName("custom") != nil)

	custom := identity.NewFactory()
	custom.Name = "custom"
	components.AddBackends(custom)
	registry, err = components.Registry()
	if err != nil {
		panic(err)
	}
	fmt.Println(registry.ByName("custom").Name)
	// Output:
	// true false
	// custom
}
