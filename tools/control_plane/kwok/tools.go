//go:build tools

// Package tools names the kwok controller that kubeshard_apiserver.testing builds.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
