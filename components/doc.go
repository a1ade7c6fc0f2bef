// Package components holds the program's Pulumi components: images, golden templates, Talos nodes and Talos clusters on
// Proxmox VE.
package components
