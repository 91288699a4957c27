// Command server is tutti with the step clip and the backend negate.
package main

import (
	"os"

	"example.com/custom/clip"
	"example.com/custom/negate"

	"github.com/tutti-server/tutti/cmd"
)

func main() {
	c := cmd.Builtin()
	c.Steps = append(c.Steps, clip.NewFactory())
	c.AddBackends(negate.NewFactory())
	os.Exit(cmd.Main(c))
}
