// Runs the program of a folder with a mocked engine, and prints what it registers as JSON.
const path = require("node:path");
const folder = path.resolve(process.argv[2]);
const pulumi = require(path.join(folder, "node_modules/@pulumi/pulumi"));

const config = {
    node: "pve1", host: "10.0.0.2", port: "22", hostKey: "ssh-ed25519 AAAA", privateKey: "key",
    network: "10.0.0.0/24", gateway: "10.0.0.1", controlPlane: "10.0.0.10/24", worker: "10.0.0.20/24",
};
const outputs = {
    "talos-proxmox:image:TalosImage": { volumeIds: { "pve1/local": "local:import/talos.raw" } },
    "talos-proxmox:template:GoldenTemplate": { vmid: 901 },
    "talos-proxmox:cluster:TalosCluster": { kubeconfig: "kubeconfig" },
};
const registered = [];

pulumi.runtime.setMocks({
    newResource: (args) => {
        registered.push({ type: args.type, name: args.name, inputs: args.inputs });
        return { id: `${args.name}-id`, state: { ...args.inputs, ...outputs[args.type] } };
    },
    call: (args) => args.inputs,
}, "two-nodes", "dev");
for (const [key, value] of Object.entries(config)) {
    pulumi.runtime.setConfig(`two-nodes:${key}`, value);
}

const program = require(path.join(folder, "bin/index.js"));
pulumi.output(program.kubeconfig).apply(() => console.log(JSON.stringify(registered)));
