//go:build tools

// Package tools names the etcd server that kubeshard_apiserver.testing builds.
package tools

import _ "go.etcd.io/etcd/server/v3"
