//go:build tools

// Package tools names the programs of another release that kubeshard is tested on.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
