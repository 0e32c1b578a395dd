// SPDX-License-Identifier: GPL-2.0
/*
 * fakepci - a PCI root bus whose functions are made of memory.
 *
 * Each entry of the parameter "devs", vendor:device:class[:subvendor:subdevice]
 * in hexadecimal, becomes one function with real sysfs files, uevents, modalias
 * and driver binding. Functions have no BARs and no interrupts: a driver that
 * wants either fails to probe, which is what a test of ours expects of it.
 *
 * QEMU has no device whose vendor can be chosen, hence this module.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/pci.h>
#include <linux/unaligned.h>

/* Slots of one bus. */
#define FAKEPCI_MAX_DEVS	32
#define FAKEPCI_REVISION	0xa1

static char *devs[FAKEPCI_MAX_DEVS];
static int ndevs;
module_param_array(devs, charp, &ndevs, 0444);
MODULE_PARM_DESC(devs, "vendor:device:class[:subvendor:subdevice], hexadecimal, one per function");

static unsigned int busnr = 0x60;
module_param(busnr, uint, 0444);
MODULE_PARM_DESC(busnr, "number of the bus, which must be free");

static u8 config_space[FAKEPCI_MAX_DEVS][PCI_CFG_SPACE_SIZE];
static struct pci_bus *root_bus;
static struct pci_sysdata sysdata = { .node = NUMA_NO_NODE };
static struct resource bus_range = {
	.name = "fakepci bus",
	.flags = IORESOURCE_BUS,
};

static u8 *fakepci_function(unsigned int devfn)
{
	unsigned int slot = PCI_SLOT(devfn);

	if (PCI_FUNC(devfn) || slot >= ndevs)
		return NULL;
	return config_space[slot];
}

static int fakepci_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	const u8 *config = fakepci_function(devfn);

	if (!config) {
		PCI_SET_ERROR_RESPONSE(value);
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	*value = 0;
	/* There is no extended configuration space: it reads as zeroes. */
	if (where + size > PCI_CFG_SPACE_SIZE)
		return PCIBIOS_SUCCESSFUL;
	switch (size) {
	case 1:
		*value = config[where];
		break;
	case 2:
		*value = get_unaligned_le16(config + where);
		break;
	case 4:
		*value = get_unaligned_le32(config + where);
		break;
	default:
		return PCIBIOS_BAD_REGISTER_NUMBER;
	}
	return PCIBIOS_SUCCESSFUL;
}

static int fakepci_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	u8 *config = fakepci_function(devfn);

	if (!config)
		return PCIBIOS_DEVICE_NOT_FOUND;
	/* All else is read only. A BAR that stays zero has no size, so the kernel assigns nothing. */
	if (where == PCI_COMMAND && size >= 2)
		put_unaligned_le16(value, config + where);
	else if (where == PCI_INTERRUPT_LINE || where == PCI_CACHE_LINE_SIZE)
		config[where] = value;
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops fakepci_ops = {
	.read = fakepci_read,
	.write = fakepci_write,
};

static int fakepci_parse(const char *text, u8 *config)
{
	unsigned int vendor, device, class, subvendor, subdevice;
	int found = sscanf(text, "%x:%x:%x:%x:%x", &vendor, &device, &class, &subvendor, &subdevice);

	if (found != 3 && found != 5) {
		pr_err("devs: '%s' is not vendor:device:class[:subvendor:subdevice]\n", text);
		return -EINVAL;
	}
	if (found == 3) {
		subvendor = vendor;
		subdevice = device;
	}
	put_unaligned_le16(vendor, config + PCI_VENDOR_ID);
	put_unaligned_le16(device, config + PCI_DEVICE_ID);
	put_unaligned_le32(class << 8 | FAKEPCI_REVISION, config + PCI_CLASS_REVISION);
	put_unaligned_le16(subvendor, config + PCI_SUBSYSTEM_VENDOR_ID);
	put_unaligned_le16(subdevice, config + PCI_SUBSYSTEM_ID);
	return 0;
}

static int __init fakepci_init(void)
{
	LIST_HEAD(resources);
	int i, err;

	if (!ndevs) {
		pr_err("devs: empty; name at least one function, such as 10de:2330:030200\n");
		return -EINVAL;
	}
	if (busnr > 0xff || pci_find_bus(0, busnr)) {
		pr_err("busnr: 0x%x is taken or no number of a bus; choose another\n", busnr);
		return -EINVAL;
	}
	for (i = 0; i < ndevs; i++) {
		err = fakepci_parse(devs[i], config_space[i]);
		if (err)
			return err;
	}

	bus_range.start = busnr;
	bus_range.end = busnr;
	pci_add_resource(&resources, &bus_range);

	pci_lock_rescan_remove();
	root_bus = pci_create_root_bus(NULL, busnr, &fakepci_ops, &sysdata, &resources);
	if (root_bus) {
		pci_scan_child_bus(root_bus);
		pci_bus_add_devices(root_bus);
	} else {
		pci_free_resource_list(&resources);
	}
	pci_unlock_rescan_remove();
	return root_bus ? 0 : -ENODEV;
}

static void __exit fakepci_exit(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(root_bus);
	pci_remove_root_bus(root_bus);
	pci_unlock_rescan_remove();
}

module_init(fakepci_init);
module_exit(fakepci_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PCI functions made of memory, for tests");
