import * as pulumi from "@pulumi/pulumi";
import { cluster, image, template } from "talos-proxmox";

// A control plane and a worker on one Proxmox host. Pulumi.yaml lists what the stack's configuration says.
const config = new pulumi.Config();
const node = config.require("node");
const talos = { version: "v1.14.4", extensions: ["qemu-guest-agent"] };

const talosImage = new image.TalosImage("talos", {
    talos,
    stores: [{ host: node, datastore: "local" }],
});

const talosTemplate = new template.GoldenTemplate("talos-template", {
    host: node,
    vmid: 901,
    talos,
    image: talosImage.volumeIds[`${node}/local`],
    shell: {
        address: config.require("host"),
        port: config.requireNumber("port"),
        hostKey: config.require("hostKey"),
        privateKey: config.requireSecret("privateKey"),
    },
});

const two = new cluster.TalosCluster("two", {
    network: { cidr: config.require("network"), gateway: config.require("gateway") },
    nodes: [
        {
            name: "two-cp-1",
            role: "controlplane",
            address: config.require("controlPlane"),
            talos,
            machine: { host: node, vmid: 2000, mac: "02:00:00:00:0a:00", template: talosTemplate.vmid },
        },
        {
            name: "two-worker-1",
            role: "worker",
            address: config.require("worker"),
            talos,
            machine: { host: node, vmid: 3000, mac: "02:00:00:00:0b:00", template: talosTemplate.vmid },
        },
    ],
});

export const kubeconfig = two.kubeconfig;
