// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for the GPU driver: the same module, device node and parameter
 * names, bound to PCI display functions of the vendor, without any access to
 * hardware. It lets tests load, hold, unload and replace "nvidia" on a real
 * kernel.
 *
 * As the real one it refuses to load where there is no GPU, and an open device
 * node holds a reference to the module.
 */
#define pr_fmt(fmt) "NVRM: " fmt

#include <linux/bitmap.h>
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "nvidia.h"

/* Numbers of the real driver: others on a node rely on them. */
#define MAJOR_NUMBER	195
#define CONTROL_MINOR	255
#define MINORS		256
#define MAX_GPUS	32

static char *NVreg_RegistryDwords;
module_param(NVreg_RegistryDwords, charp, 0444);
MODULE_PARM_DESC(NVreg_RegistryDwords, "taken and shown, without effect");

static DECLARE_BITMAP(minors, MAX_GPUS);
static DEFINE_MUTEX(minors_lock);
static const dev_t first = MKDEV(MAJOR_NUMBER, 0);
static struct cdev nodes;
static struct class *class;

static const struct file_operations fops = {
	.owner = THIS_MODULE,
};

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0 },
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0 },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

/* What modules beside this one depend on: while one is loaded, this one cannot be unloaded. */
unsigned int nvidia_gpu_count(void)
{
	return bitmap_weight(minors, MAX_GPUS);
}
EXPORT_SYMBOL(nvidia_gpu_count);

/* Nodes are numbered from 0, and a function that comes back gets the lowest free number. */
static int stand_in_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct device *node;
	unsigned int minor;

	mutex_lock(&minors_lock);
	minor = find_first_zero_bit(minors, MAX_GPUS);
	if (minor < MAX_GPUS)
		__set_bit(minor, minors);
	mutex_unlock(&minors_lock);
	if (minor >= MAX_GPUS)
		return -ENOSPC;

	node = device_create(class, &pdev->dev, first + minor, NULL, "nvidia%u", minor);
	if (IS_ERR(node)) {
		mutex_lock(&minors_lock);
		__clear_bit(minor, minors);
		mutex_unlock(&minors_lock);
		return PTR_ERR(node);
	}
	pci_set_drvdata(pdev, (void *)(unsigned long)minor);
	return 0;
}

static void stand_in_remove(struct pci_dev *pdev)
{
	unsigned int minor = (unsigned long)pci_get_drvdata(pdev);

	device_destroy(class, first + minor);
	mutex_lock(&minors_lock);
	__clear_bit(minor, minors);
	mutex_unlock(&minors_lock);
}

static struct pci_driver driver = {
	.name = "nvidia",
	.id_table = ids,
	.probe = stand_in_probe,
	.remove = stand_in_remove,
};

static int __init stand_in_init(void)
{
	struct device *control;
	int err;

	err = register_chrdev_region(first, MINORS, "nvidia");
	if (err)
		return err;
	cdev_init(&nodes, &fops);
	nodes.owner = THIS_MODULE;
	err = cdev_add(&nodes, first, MINORS);
	if (err)
		goto unregister_region;
	class = class_create("nvidia");
	if (IS_ERR(class)) {
		err = PTR_ERR(class);
		goto delete_nodes;
	}
	control = device_create(class, NULL, first + CONTROL_MINOR, NULL, "nvidiactl");
	if (IS_ERR(control)) {
		err = PTR_ERR(control);
		goto destroy_class;
	}
	err = pci_register_driver(&driver);
	if (err)
		goto destroy_control;
	if (bitmap_empty(minors, MAX_GPUS)) {
		pr_err("No NVIDIA GPU found.\n");
		err = -ENODEV;
		goto unregister_driver;
	}
	return 0;

unregister_driver:
	pci_unregister_driver(&driver);
destroy_control:
	device_destroy(class, first + CONTROL_MINOR);
destroy_class:
	class_destroy(class);
delete_nodes:
	cdev_del(&nodes);
unregister_region:
	unregister_chrdev_region(first, MINORS);
	return err;
}

static void __exit stand_in_exit(void)
{
	pci_unregister_driver(&driver);
	device_destroy(class, first + CONTROL_MINOR);
	class_destroy(class);
	cdev_del(&nodes);
	unregister_chrdev_region(first, MINORS);
}

module_init(stand_in_init);
module_exit(stand_in_exit);

MODULE_LICENSE("GPL");
MODULE_VERSION("550.163.01");
MODULE_DESCRIPTION("Stand-in for the GPU driver, for tests");
