// Package tutti is the composition root: Main reads the options, wires the layers, runs, and stops in order. It is handed
// its components, so a program with other steps or backends is a main function of its own over this package.
//
//   - tutti.go: Main and the commands
//   - server.go: everything of a running server put together, and its orderly end; front.go: its sockets; wire.go: what
//     its services are made from
//   - serve.go, validate.go, config.go, plan.go, infer.go, demo.go, repo*.go, runtime.go, starter.go: a command each
//   - examples.go: requests with their expected answers; steptime.go: what a request cost step by step; text.go and
//     progress.go: what is shown to a terminal
package tutti
