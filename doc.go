// Package tutti is the composition root: Main reads the flags, wires the layers, runs, and stops in order. It is handed
// its components, so a program with other steps or backends is a main function of its own over this package.
//
//   - tutti.go: Main and the commands
//   - options.go: Options, what serve can be told; flag.go: the table of flags, whose rows are in flags_*.go;
//     source.go: where their values come from; finish.go: what they say together
//   - server.go: everything of a running server put together, and its orderly end; front.go: its sockets
//   - serve.go, validate.go, plan.go, infer.go, demo.go, runtime.go: a command each
package tutti
