// Package tutti composes a server from its parts: options, backends, steps, the model repository, caches, traces and the
// services for HTTP, gRPC and metrics. The package contains no commands: package cmd adds the command line.
//
// A program with its own steps or backends passes its Components to cmd.Main, or opens a Server itself. Open describes the
// phases of a server. For example:
//
//	c := cmd.Builtin()
//	c.Steps = append(c.Steps, mystep.NewFactory())
//	s, err := tutti.Open(ctx, tutti.Settings{Args: []string{"--model-repository=models"}, Components: c})
package tutti

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/steps"
)

// Version is the version of the server, which its metadata and `tutti version` return.
const Version = "0.1.0"

// Components are the factories that a server is built from. A copy shares the slice of steps.
type Components struct {
	// Steps are the native steps: the values of the parameter "step" of a model with backend "native".
	Steps []steps.Factory
	// Backends returns the backends. Its argument is the registry of Steps, for the backend "native". It is called once
	// for each registry and may be nil.
	Backends func(*steps.Registry) []backends.Factory

	_ struct{}
}

// AddBackends adds backends to those that c.Backends returns.
func (c *Components) AddBackends(list ...backends.Factory) {
	before := c.Backends
	c.Backends = func(r *steps.Registry) (all []backends.Factory) {
		if before != nil {
			all = before(r)
		}
		return append(all, list...)
	}
}

// Registry returns the registry of the backends. It fails if two factories have the same name.
func (c *Components) Registry() (*backends.Registry, error) {
	known, err := steps.NewRegistry(c.Steps...)
	if err != nil || c.Backends == nil {
		return &backends.Registry{}, err
	}
	return backends.NewRegistry(c.Backends(known)...)
}
