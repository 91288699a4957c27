// Command tutti serves models and the ensembles made of them.
package main

import (
	"os"

	"github.com/tutti-server/tutti/cmd"
)

func main() { os.Exit(cmd.Main(cmd.Builtin())) }
