import numpy as np
MODEL = np.ones((31, 3))
