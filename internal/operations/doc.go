// Package operations has what an operator does with a stack that was deployed, beside `pulumi up`: import, status,
// replacement, backup, restore, rotation of authorities, resealing of a state. Each reads the stack's configuration and
// state with the Pulumi CLI, and talosops works on the machines.
package operations
