"""Write the sentences of the Mandarin corpus: a context-free grammar of commands, numbers, dates, prices and places.

A line `name = a | b | ...` (or several lines) gives the alternatives of a rule; `{name}` stands for any of them. Words
stand apart, as in AISHELL's transcripts; numbers are written as they are said. No two alternatives of one place sound
alike, so each recording has one right transcript. Left out is what espeak-ng doesn't know: 儿 as a mere ending (那儿),
which it spells in English, 熊, and A before another letter.
"""

import re

from synthesis.grammar import draw, parse

GRAMMAR = """
sentence = {home} | {home} | {music} | {phone} | {route} | {travel} | {travel} | {robot} | {shop} | {shop} | {shop}
    | {sky} | {clock} | {clock} | {clock} | {sum} | {sum} | {code} | {talk} | {talk} | {office} | {study} | {health}
    | {sport} | {news} | {nature} | {screen} | {screen}

home = {please} 打开 {room} 的 {device} | {please} 把 {room} 的 {device} 关掉 | {room} 的 {device} 还 开着 吗
    | 把 {room} 的 温度 调到 {below100} 度 | {room} 的 灯光 换成 {colour} | 把 {device} 的 亮度 降低 百分之 {below100}
    | {when} 把 {machine} 打开 | {when} {room} 的 窗户 没有 关好 | {please} 拉上 {room} 的 窗帘
    | {time} 打开 {room} 的 窗帘 | {machine} 坏了 ， {when} 找 人 来 修 | {room} 里 太 {feel} 了 ， 打开 {device} 吧
    | {when} 让 {machine} 打扫 {room} | {room} 的 {furniture} 是 {colour} 的 | 我们 想 给 {room} 买 一张 {furniture}
    | {family} 在 {room} 里 休息 ， 请 把 {device} 关掉 | {machine} 一个 月 用 {number} 度 电
    | 门口 有 {small} 个 快递 ， 请 拿到 {room}
music = 播放 {singer} 的 歌 | 来 一首 {genre} | 我 想 听 {genre} | 把 音量 调到 百分之 {below100}
    | 播放 第 {ordinal} 首 歌 | {when} 唱 {genre} 的 是 谁 | {singer} {when} 在 {city} 开 演唱会
    | 把 这 首 歌 加入 {family} 的 收藏 | {person} 收藏 了 第 {ordinal} 首 歌 | {family} 喜欢 在 {room} 里 听 {genre}
    | {person} 弹 {instrument} 弹 了 {small} 年 | 这张 唱片 卖 {price}
phone = {when} 给 {person} 打 电话 | {please} 打 电话 给 我 {family} | 我 的 号码 是 {digits}
    | 给 {person} 发 短信 说 我 {state} 了 | {person} 的 新 号码 是 {digits} | {person} {when} 打 过 电话 吗
    | {family} 的 电话 一直 没有 人 接 | 我 有 {small} 条 没有 看 的 短信 | 删除 {person} 的 短信
    | 告诉 {family} 我 {time} 回家 | {person} 换 号码 了 ， 现在 是 {digits} | 手机 只 剩 百分之 {below100} 的 电 了
    | {please} 给 {person} 留言 ， 说 会议 {time} 开始
route = 去 {city} {place} 怎么 走 | {city} 最近 的 {place} 在 哪里 | 从 {place} 到 {place} 有 多 远
    | 在 {place} {side} 转 | 前方 {number} 米 {side} 转 | {place} 在 {place} 的 {compass} 边
    | 沿着 {compass} 边 的 路 走 {small} 公里 | 到 {place} 要 走 {below100} 分钟 | {place} 对面 有 一家 {place}
    | {place} 门口 不能 停车 | 坐 {line} 号线 到 {place} 下车 | 从 {letter} 出口 出来 往 {compass} 走 {number} 米
    | {place} 在 {letter} 座 {below100} 楼 | 过 了 桥 以后 {side} 转 到 {place} | 路口 的 红灯 要 等 {below100} 秒
    | {person} 在 {city} {place} 迷路 了
travel = 我 想 订 一张 {when} 去 {city} 的 {ticket} | 从 {city} 到 {city} 的 {ticket} 多少 钱 | {city} 有 什么 好玩 的
    | 去 {city} 的 {vehicle} {time} 出发 | {vehicle} 晚点 {below100} 分钟 | {when} 我们 坐 {vehicle} 去 {city}
    | 帮 我 取消 {when} 去 {city} 的 {ticket} | {city} 到 {city} 坐 {vehicle} 要 {small} 个 小时
    | {person} 从 {country} 回来 了 | {season} 去 {country} 旅游 最 好 | {country} 的 首都 在 哪里
    | {family} 想 去 {country} 看 {sight} | 预订 {city} 的 酒店 ， 住 {small} 个 晚上 | 酒店 的 房间 一晚 {price}
    | {city} 的 {sight} 很 有名 | {flight} 次 航班 在 {below100} 号 登机口 登机 | {sight} 的 门票 {price} 一张
    | 我们 在 {city} 拍 了 {number} 张 照片 | 坐 {vehicle} 去 {place} 便宜 多了 | {person} 的 行李 超重 {small} 公斤
    | {flight} 次 航班 飞往 {country} | 一共 有 {number} 名 旅客 到达 {city}
robot = {please} 把 {colour} 的 {thing} 拿 给 我 | 向 {direction} 走 {small} 步 | 把 {thing} 放 在 {furniture} {where}
    | {furniture} {where} 有 一个 {size} {thing} | 拿起 {size} {thing} 放到 {furniture} {where}
    | 向 {side} 转 {below100} 度 | 回到 {room} 等 {small} 分钟 | {which} 个 {thing} 在 {furniture} {where}
    | 把 {furniture} 往 {direction} 推 {small} 厘米 | 去 {room} 里 找 一下 {thing} | 机器人 ， 站住 {small} 秒
    | 把 {thing} 擦 干净 再 放回 {furniture} {where} | 帮 {family} 提 {colour} 的 {thing}
shop = {fruit} 多少 钱 一斤 | {fruit} {small} 块 {digit1} 一斤 | 我 要 买 {small} 斤 {fruit} 和 {small} 斤 {vegetable}
    | 这件 {clothes} 卖 {price} | 那件 {colour} 的 {clothes} 打 {discount} 折 | 有 没有 {colour} 的 {clothes}
    | 请 给 我 一杯 {drink} | {small} 杯 {drink} 一共 {price} | 晚饭 吃 {dish} 怎么样 | 帮 我 点 一份 {dish}
    | 把 {fruit} 和 {vegetable} 加到 购物 清单 | 从 清单 里 删掉 {vegetable} | 家里 没有 {vegetable} 了
    | {dish} 太 {taste} 了 | 我 付 了 {price} ， 找 我 {price} | {family} 早饭 喜欢 喝 {drink}
    | {dish} 要 煮 {below100} 分钟 | 这个 月 {vegetable} 涨价 了 | {fruit} 比 {fruit} 便宜 {small} 块 钱
    | {colour} 的 {clothes} 可以 试穿 吗 | {clothes} 太 {size1} 了 ， 换 一件 | 一共 {price} ， 请 付款
    | {dish} 里 不要 放 {spice} | 再 来 {small} 碗 {staple} | 超市 的 {spice} 都 卖 光 了
    | {drink} 里 少 放 一点 {spice} | 您 的 VIP 卡 里 还有 {price} | 这件 T 恤 {price}
sky = {city} {when} 天气 怎么样 | {city} {when} 会 下 {rain} 吗 | {city} {when} {weather} ， 气温 {below100} 度
    | {weekday} 有 {rain} ， 出门 带 {carry} | 今天 最高 气温 {below100} 度 | {city} 今天 夜里 零下 {small} 度
    | {compass} 风 {small} 级 | {season} 的 {city} 经常 {weather} | {when} 空气 质量 怎么样
    | {city} {weekday} 多云 转 {weather} | 外面 太 {feel} 了 ， 别忘 了 {carry}
clock = {time} 叫 我 起床 | 设 一个 {time} 的 闹钟 | 取消 {time} 的 闹钟 | 提醒 我 {time} {task}
    | {small} 分钟 以后 提醒 我 | 倒计时 {below100} 秒 | 今天 是 {date} | 今天 {weekday} | {date} 是 星期几
    | {year} 年 {date} 是 {weekday} | 我 {family} 的 生日 是 {date} | {person} 出生 在 {year} 年 {date}
    | {person} 和 {person} {date} 结婚 | {when} {time} 在 {place} 见面 | {place} {time} 开门 | {place} {time} 关门
    | 现在 是 {time} | {year} 年 我 在 {city} | 现在 {city} 几点 了 | {festival} 放假 {small} 天
    | {year} 年 的 {festival} 是 {date} | 别 忘记 {when} {task} | 会议 改到 {weekday} {time}
    | {place} 成立 于 {year} 年 {month} | {festival} 那天 我们 吃 {staple}
sum = {number} 加 {number} 等于 多少 | {number} 减 {below100} 是 多少 | {number} 乘以 {small} 等于 {number}
    | {number} 除以 {small} | {decimal} 加 {decimal} 等于 几 | 百分之 {decimal} | {number} 的 一半 是 多少
    | {number} {unit} 等于 多少 {measure} | 这条 {river} 长 {number} 公里 | 这座 山 高 {number} 米
    | 从 {small} 数到 {number} | 第 {ordinal} 题 的 答案 是 {decimal} | 人口 增长 了 百分之 {decimal}
    | 一共 {number} 人 ， {below100} 个 {people} | {thing} 重 {decimal} 公斤 | 三分之 {small} 是 多少
    | {number} 大于 {number}
code = 密码 是 {digits} | 验证码 {digit}{digit}{digit}{digit} | 座位 号 是 {below100} {letter}
    | 请 输入 {letter} {digit}{digit}{digit} | 车牌 号 是 {letter} {digits}
    | 订单 号 {later} {letter} {digit}{digit}{digit} | 选择 {letter} 还是 {letter} | 第 {ordinal} 题 选 {letter}
    | 请 到 {letter} {below100} 号 窗口 | 房间 号 是 {digit1}{digit}{digit}{digit1}
    | {person} 在 {letter} 班 ， 学号 {digits}
talk = {person} {when} {state} 了 | {family} 是 {job} | {person} 想 当 {job} | 你 认识 {person} 吗
    | 我 叫 {person} ， 是 {job} | {person} 家里 有 {small} 只 {animal} | {family} 喜欢 {hobby}
    | 我 不会 说 {language} | {person} 会 说 {language} 和 {language} | 你 为什么 {state} 了
    | {person} 今年 {below100} 岁 | {family} 比 我 大 {small} 岁 | 谢谢 你 ， {person} | 对不起 ， 我 {state} 了
    | 祝 {family} {festival} 快乐 | {person} 住 在 {city} | 很 高兴 认识 你 ， 我 是 {person}
    | 你 {when} 有空 吗 ， 一起 {hobby} 吧 | 我 和 {family} 一起 {hobby} | {person} 学 了 {small} 年 {language}
    | {family} 不 喜欢 {colour} 的 {clothes} | {person} 觉得 {hobby} 很 有意思 | {person} 的 {family} 是 {city} 人
    | {person} 送给 {family} 一件 {clothes} | {please} 讲 一个 {animal} 和 {animal} 的 故事 | {person} 说 得 很 对
    | OK ， 我 {time} 到
office = {when} {time} 开会 | 会议 在 {number} 会议室 | 给 {person} 发 一封 邮件 | 把 PPT 发 给 {person}
    | 请 打印 {below100} 份 PDF | {person} 的 公司 有 {number} 名 员工 | {company} 今年 赚 了 {number} 万元
    | {company} 的 股票 上涨 百分之 {decimal} | {person} 是 {company} 的 经理 | 合同 {date} 到期
    | {company} {dayofmonth} 号 发 工资 | {when} 我 要 去 {city} 出差 | 请 在 {date} 以前 完成 报告
    | 这个 项目 需要 {below100} 个 {people} | {city} {place} 有 ATM 吗 | 办公 室 的 WIFI 密码 是 {digits}
    | {company} 的 CEO 访问 {country}
study = {person} 的 {subject} 考 了 {below100} 分 | {weekday} 上午 有 {subject} 课
    | {person} 的 {subject} 作业 还没 写完 | {subject} 老师 姓 {surname} | 这本 书 有 {number} 页
    | {person} 在 {city} 上 大学 | 我 借 了 {small} 本 {subject} 书 | {person} 是 {subject} 专业 的 学生
    | {date} 考 {subject} | 班里 有 {below100} 个 学生 | 把 {subject} 课本 放进 书包 | {language} 里 谢谢 怎么 说
    | {person} 画 了 一只 {colour} 的 {animal}
health = {family} {body} 疼 ， 想 看 医生 | {person} 发烧 {fever} 度 | 这种 药 一天 吃 {small} 次 ， 一次 {small} 片
    | {weekday} 去 {place} 做 B 超 | 每天 走 {number} 步 | 医生 让 {family} 少 吃 {taste} 的
    | {person} 的 {body} 受伤 了 | {person} 体重 减 了 {small} 公斤 | {family} 每天 睡 {small} 个 小时
    | 你 的 {body} 好 一点 了 吗
sport = {team} {number} 比 {below100} 战胜 {team} | {when} 有 NBA 比赛 吗 | {team} 队 进 了 {small} 个 球
    | {person} 跑 了 第 {ordinal} 名 | {ball} 比赛 {time} 开始 | {team} 输 了 {small} 分
    | CCTV {when} 直播 {ball} 决赛 | {family} 每天 打 {small} 个 小时 {ball} | {team} 的 教练 是 {person}
    | 我们 {weekday} 打 {ball} 吧 | {person} 用 {below100} 秒 跑完 {number} 米 | {team} {when} 得到 {medal}
news = {city} 的 房价 上涨 百分之 {decimal} | {country} 总统 {when} 访问 {country} | {city} 发生 {small} 级 地震
    | {year} 年 {city} 举办 运动会 | {country} 的 GDP 增长 百分之 {decimal} | {city} 地铁 {line} 号线 {date} 通车
    | 警察 在 {place} 抓住 了 {small} 个 小偷 | {city} 的 人口 是 {number} 万 | {city} 的 油价 {date} 上涨
    | {city} 有 {small} 所 新 {place}
nature = {animal} 在 {nplace} 睡觉 | {nplace} 有 {below100} 只 {animal} | {season} {flower} 开 了
    | {place} 的 {flower} 真 漂亮 | {animal} 爱 吃 {fruit} | {colour} 的 {animal} 飞走 了
    | {when} 月亮 从 {nplace} 升起 | {city} 动物园 有 {small} 只 {animal} | {family} 种 了 {small} 棵 {tree}
    | {nplace} 长满 了 {tree} | {animal} 跑得 比 {animal} 快
screen = 打开 {family} 的 {app} | {when} 打开 {app} | {family} 的 {gadget} 坏了 | 这部 电影 {year} 年 上映
    | {cinema} 放 什么 电影 | 买 {small} 张 {time} 的 电影票 | {person} 主演 的 电影 很 {film}
    | 用 {gadget} 的 APP {purpose} | {gadget} 卖 {price} | 看 {singer} 和 {singer} 的 MV
    | {person} 喜欢 {singer} 的 MV | {please} 打开 CCTV {below20} | 我们 {when} 去 KTV 唱歌 吧
    | {person} 的 IPHONE 丢 了 | 打开 {room} 的 WIFI | 这张 {disc} 是 {year} 年 出 的
    | {person} 的 {gadget} 屏幕 碎 了 | 把 第 {ordinal} 张 照片 发 给 {person} | {family} 用 IPHONE 看 {disc}

please = 请 | 麻烦 你 | 请 帮 我 | 现在 | 马上
when = 今天 | 明天 | 后天 | 昨天 | {weekday} | 下周 | {month} | {date} | 今天 {part} | 明天 {part} | {weekday} {part}
part = 早上 | 上午 | 中午 | 下午 | 傍晚 | 晚上
weekday = 星期一 | 星期二 | 星期三 | 星期四 | 星期五 | 星期六 | 星期日 | 周末 | 礼拜天
month = 一月 | 二月 | 三月 | 四月 | 五月 | 六月 | 七月 | 八月 | 九月 | 十月 | 十一月 | 十二月
season = 春天 | 夏天 | 秋天 | 冬天
dayofmonth = {digit1} | 十 | 十{digit1} | 二十 | 二十{digit1} | 三十 | 三十一
date = {month} {dayofmonth}号 | {month} {dayofmonth}日
year = 二零二{digit} | 二零一{digit} | 二零零{digit1} | 一九{tens5}{digit} | 一九九{digit}
hour = 一 | 两 | 三 | 四 | 五 | 六 | 七 | 八 | 九 | 十 | 十一 | 十二
time = {part} {hour}点 | {part} {hour}点 半 | {hour}点 {tens5}十分 | {hour}点 一刻 | {hour}点 三刻
    | {hour}点 二十{digit1} | {part} {hour}点 零{digit1}分
tens5 = 五 | 六 | 七 | 八
tens = 二 | 三 | 四 | 五 | 六 | 七 | 八 | 九
digit1 = 一 | 二 | 三 | 四 | 五 | 六 | 七 | 八 | 九
digit = 零 | {digit1} | {digit1} | {digit1} | {digit1} | {digit1} | {digit1} | {digit1}
digits = {digit}{digit}{digit}{digit} | 一{digit}{digit}{digit}{digit}{digit} | {digit}{digit}{digit}{digit}{digit}
ordinal = {digit1} | 十{digit1} | {tens}十
line = {digit1} | 十{digit1}
small = 两 | 三 | 四 | 五 | 六 | 七 | 八 | 九 | 十
below20 = {digit1} | 十{digit1}
below100 = 十{digit1} | {tens}十 | {tens}十{digit1}
hundreds = 一 | 两 | 三 | 四 | 五 | 六 | 七 | 八 | 九
number = {below100} | {hundreds}百 | {hundreds}百零{digit1} | {hundreds}百{tens}十{digit1} | {hundreds}千{hundreds}百
    | {small}万
decimal = {digit1}点{digit1} | {below100}点{digit1} | {digit1}点{digit}{digit1} | 零点{digit1}
fever = 三十八点{digit1} | 三十九点{digit1} | 四十
price = {number} 块 | {number} 元 | {small} 块 {digit1} 毛 | {below100} 块 五
discount = 五 | 六 | 七 | 八 | 九
measure = 公里 | 公斤 | 米 | 厘米
unit = 英里 | 吨 | 尺
which = 哪 | 那 | 第 {ordinal}
letter = A | {later}
later = B | C | D | F | G | K | M | T | X
room = 客厅 | 卧室 | 厨房 | 书房 | 阳台 | 餐厅 | 车库
device = 灯 | 空调 | 电视 | 风扇 | 音响 | 电脑
machine = 洗衣机 | 扫地 机器人 | 洗碗机
furniture = 桌子 | 沙发 | 床 | 柜子 | 书架
feel = 热 | 冷 | 潮湿 | 干燥
state = 累 | 饿 | 困 | 迟到 | 生气 | 搬家 | 出发
colour = 红色 | 黄色 | 蓝色 | 绿色 | 白色 | 黑色 | 灰色
thing = 杯子 | 盒子 | 钥匙 | 雨伞 | 毛巾 | 铅笔 | 剪刀 | 花瓶 | 镜子 | 箱子
where = 上面 | 下面 | 旁边 | 后面 | 里面
size = 大 | 小 | 最 大 的 | 很 小 的 | 漂亮 的
size1 = 大 | 小 | 长 | 短
side = 左 | 右
direction = 前 | 后 | {side}
compass = 东 | 南 | 西 | 北
singer = 周杰伦 | 邓丽君 | 王菲
genre = 民歌 | 京剧 | 摇滚 | 古典 音乐 | 流行 歌曲
instrument = 钢琴 | 吉他
surname = 赵 | 钱 | 孙 | 李 | 周 | 吴 | 郑 | 王 | 陈 | 杨 | 马 | 刘
person = {surname}{given} | {surname}{given} | 小{surname} | {surname}老师 | {surname}医生
given = 明 | 丽 | 强 | 芳 | 伟 | 静 | 建国 | 秀英 | 志强 | 海燕 | 雪梅
family = 爸爸 | 妈妈 | 哥哥 | 姐姐 | 弟弟 | 妹妹 | 爷爷 | 奶奶 | 叔叔 | 阿姨 | 邻居 | 同学
people = 工人 | 学生 | 老人 | 男孩 | 女孩
place = 医院 | 学校 | 银行 | 机场 | 火车站 | 超市 | 公园 | 图书馆 | 邮局 | 加油站 | 体育馆 | 饭店 | 菜市场
city = 北京 | 上海 | 广州 | 深圳 | 成都 | 重庆 | 西安 | 武汉 | 南京 | 杭州 | 天津 | 青岛 | 香港
country = 中国 | 美国 | 英国 | 法国 | 德国 | 日本 | 韩国 | 印度 | 巴西
language = 英语 | 法语 | 日语 | 德语 | 广东话 | 普通话
sight = 长城 | 故宫 | 泰山 | 沙漠 | 古镇
ticket = 火车票 | 机票 | 船票
vehicle = 高铁 | 飞机 | 地铁 | 公共 汽车 | 出租车
flight = {later} {letter} {digit1}{digit}{digit1}
fruit = 苹果 | 香蕉 | 葡萄 | 西瓜 | 草莓 | 桃子
vegetable = 白菜 | 土豆 | 黄瓜 | 豆腐
drink = 咖啡 | 绿茶 | 牛奶 | 豆浆 | 啤酒 | 果汁
dish = 火锅 | 烤鸭 | 红烧肉 | 麻婆豆腐 | 炒鸡蛋 | 清蒸鱼
staple = 米饭 | 面条 | 饺子 | 包子 | 汤圆
spice = 辣椒 | 糖 | 盐 | 香菜
taste = 辣 | 甜 | 酸
clothes = 衬衫 | 裙子 | 外套 | 毛衣 | 裤子 | 帽子
rain = 小雨 | 大雪 | 台风 | 雷阵雨
weather = 晴 | 阴 | 有雾 | 刮风 | 下雪
carry = 雨伞 | 手套 | 帽子
task = 浇花 | 吃药 | 喂 {animal} | 交 房租 | 开会 | 接 孩子 | 给 {person} 回 电话 | 买 {vegetable}
festival = 春节 | 中秋节 | 元旦 | 国庆节
river = 河 | 路
job = 医生 | 老师 | 司机 | 厨师 | 律师 | 工程师 | 农民 | 警察 | 演员
animal = 猫 | 狗 | 兔子 | 老虎 | 大象 | 猴子 | 鸽子 | 狮子
hobby = 跳舞 | 游泳 | 下棋 | 爬山 | 钓鱼 | 跑步 | 画画 | 看 电影 | 骑车 | 做饭
company = 华为 | 百度 | 这家 工厂 | 那家 银行
subject = 数学 | 语文 | 英语 | 历史 | 物理 | 化学 | 体育
body = 头 | 牙 | 肚子 | 腰 | 眼睛
team = 广东 | 北京 | 上海 | 山东 | 新疆 | 中国
medal = 金牌 | 银牌 | 铜牌
ball = 篮球 | 足球 | 乒乓球 | 排球 | 网球
nplace = 山 上 | 河 边 | 森林 里 | 草原 上 | 湖 边 | 花园 里
flower = 桃花 | 荷花 | 梅花
tree = 苹果树 | 松树 | 竹子
app = 微信 | 地图 | 日历 | 相机 | 计算器
gadget = IPHONE | 手机 | 电脑 | 手表 | 耳机
cinema = 电影院 | {place} 附近 的 电影院 | {city} 的 电影院
film = 好看 | 无聊 | 感人
purpose = 学 {language} | 看 天气 | 听 {genre} | 看 地图
disc = DVD | CD
"""

RULES = parse(GRAMMAR)


def transcript(sentence):
    """Return what is said as a transcript: words that stand apart, no punctuation.

    >>> transcript("晚安 ， 明天 见")
    '晚安 明天 见'
    """
    return " ".join(sentence.replace("，", "").split())


def units(text):
    """List what a transcript is made of: Han characters, and Latin words whole.

    >>> units("打开 WIFI 吧")
    ['打', '开', 'WIFI', '吧']
    """
    return re.findall(r"[A-Z]+|\S", text)


def sentences(rng, count, taken):
    """Draw `count` sentences of 4 to 24 characters, different from each other and from all in `taken`.

    rng:     random.Random
    taken:   set of transcripts, which the new ones join
    returns  list of sentences, as `transcript` wants them and espeak-ng says them
    """
    return draw(rng, count, taken, RULES, transcript, acceptable, units)


def acceptable(text, taken):
    """Tell whether a transcript is new, of 4 to 24 characters, and names nothing twice but numbers."""
    names = [
        word
        for word in text.split()
        if not re.fullmatch("[零一两二三四五六七八九十百千万点]+|.", word)
    ]
    return (
        4 <= len(units(text.replace(" ", ""))) <= 24
        and len(set(names)) == len(names)
        and text not in taken
    )
