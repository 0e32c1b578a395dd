/* SPDX-License-Identifier: GPL-2.0 */
/* What the stand-in of the GPU driver offers to modules beside it. */
#ifndef NVIDIA_STAND_IN_H
#define NVIDIA_STAND_IN_H

unsigned int nvidia_gpu_count(void);

#endif
