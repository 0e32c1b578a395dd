// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for the module of unified memory: device nodes and a dependency on
 * the GPU driver, so that the order of loading and unloading is the real one.
 */
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/module.h>

#include "nvidia.h"

static const char *const names[] = { "nvidia-uvm", "nvidia-uvm-tools" };

static dev_t first;
static struct cdev nodes;
static struct class *class;

static const struct file_operations fops = {
	.owner = THIS_MODULE,
};

static int __init uvm_init(void)
{
	struct device *node;
	int i, err;

	if (!nvidia_gpu_count())
		return -ENODEV;
	err = alloc_chrdev_region(&first, 0, ARRAY_SIZE(names), "nvidia-uvm");
	if (err)
		return err;
	cdev_init(&nodes, &fops);
	nodes.owner = THIS_MODULE;
	err = cdev_add(&nodes, first, ARRAY_SIZE(names));
	if (err)
		goto unregister_region;
	class = class_create("nvidia-uvm");
	if (IS_ERR(class)) {
		err = PTR_ERR(class);
		goto delete_nodes;
	}
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		node = device_create(class, NULL, first + i, NULL, "%s", names[i]);
		if (IS_ERR(node)) {
			err = PTR_ERR(node);
			goto destroy_nodes;
		}
	}
	return 0;

destroy_nodes:
	while (i--)
		device_destroy(class, first + i);
	class_destroy(class);
delete_nodes:
	cdev_del(&nodes);
unregister_region:
	unregister_chrdev_region(first, ARRAY_SIZE(names));
	return err;
}

static void __exit uvm_exit(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		device_destroy(class, first + i);
	class_destroy(class);
	cdev_del(&nodes);
	unregister_chrdev_region(first, ARRAY_SIZE(names));
}

module_init(uvm_init);
module_exit(uvm_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stand-in for the module of unified memory, for tests");
