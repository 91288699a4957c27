//go:build !noxds

package cmd

// Registers the targets xds:/// and the outlier detection of the backend remote. See docs/decisions/031-xds.md.
import _ "google.golang.org/grpc/xds"
