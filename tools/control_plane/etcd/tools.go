//go:build tools

// Package tools names the etcd server that kubeshard.testing builds.
package tools

import _ "go.etcd.io/etcd/server/v3"
