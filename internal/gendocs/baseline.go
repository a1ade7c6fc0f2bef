package main

// baselineStack is the deployed stack whose keys are changed one by one.
const baselineStack = `config:
  proxmoxve:endpoint: https://10.0.0.2:8006/
  talos-proxmox:hosts:
    - name: pve1
      address: 10.0.0.2
      ssh: {acceptAnyHostKey: true}
      gpus: [{name: a2000, pci: "01:00", generation: ampere}, {name: rtx4000, pci: "02:00", generation: ada}]
      devices: [{name: nic, pci: "03:00.0"}]
    - {name: pve2, address: 10.0.0.3, ssh: {acceptAnyHostKey: true}}
  talos-proxmox:templates:
    talos: {version: v1.14.3}
    other: {version: v1.14.4, firstVmid: 920}
    debian: {os: debian, release: "13", build: "20260712-2537", firstVmid: 940}
  talos-proxmox:clusters:
    - name: prod
      kubernetesVersion: v1.36.4
      network: {cidr: 10.0.1.0/24, gateway: 10.0.1.1, dns: [1.1.1.1], ipv6: {cidr: "fd00:1::/64"}}
      controlPlane: {count: 1}
      workers:
        - name: general
          count: 2
          nodes: {"1": {host: pve1}}
          extraDisks: [{sizeGiB: 10, interface: virtio1}]
          extraNICs: [{bridge: vmbr1}]
      gpuWorkers: [{name: gpu, gpu: a2000, count: 1}]
  talos-proxmox:machines:
    - name: web
      template: debian
      firstAddress: 10.0.1.100
      network: {cidr: 10.0.1.0/24, gateway: 10.0.1.1, dns: [1.1.1.1]}
`

// Paths in it.
const (
	poolPath = "clusters.0.workers.0."
	nodePath = poolPath + "nodes.1."
)
