// Package noquery keeps a program from asking its terminal for the background colour when it starts: bubbletea, which
// Pulumi's SDK imports, does so in its init function, and waits 5 s for terminals that do not answer. A main package
// imports this one, and calls [Restore] first.
//
// Termenv, which asks, takes an environment with CI for no terminal. This package is initialized before those that
// read the environment, because it imports nothing but syscall: the language initializes the first package by path
// whose imports are initialized, and they import time, by way of os, whose path is after this one's.
package noquery

import "syscall"

const variable = "CI"

var isOurs bool

func init() {
	if value, set := syscall.Getenv(variable); !set || value == "" {
		isOurs = syscall.Setenv(variable, "1") == nil
	}
}

// Restore removes the variable that this package has set, which programs that are started from this one would inherit.
func Restore() {
	if isOurs {
		_ = syscall.Unsetenv(variable) // of a name without '='
	}
}
