//go:build tools

// Package tools names Helm, with which the tests of `deploy/helm` render it.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
